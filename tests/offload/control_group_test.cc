#include "offload/host/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fasa {
namespace {

namespace fs = std::filesystem;

// A folder with the files of the kernel that a test writes.
class ControlGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const char* file, const char* text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  ControlGroup read() const { return ControlGroup::read(root_); }

 private:
  fs::path root_ = fs::path(::testing::TempDir()) / "fasa_control_group";
};

TEST_F(ControlGroupTest, NoFilesNoLimits) {
  EXPECT_FALSE(read().any());
  write("proc/self/cgroup", "0::/\n");
  EXPECT_FALSE(read().any());
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_FALSE(read().any());
}

TEST_F(ControlGroupTest, TheNarrowestOfAServiceAndOfTheGroupsAroundIt) {
  write("proc/self/cgroup", "0::/system.slice/fasa.service\n");
  write("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/system.slice/memory.max", "5000000\n");
  write("sys/fs/cgroup/system.slice/memory.current", "4900000\n");
  write("sys/fs/cgroup/system.slice/fasa.service/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/system.slice/fasa.service/memory.max", "3000000\n");
  write("sys/fs/cgroup/system.slice/fasa.service/memory.current", "2000000\n");
  const ControlGroup group = read();
  EXPECT_EQ(group.cpus, 1.5);
  EXPECT_EQ(group.memory_limit, 3000000u);
  EXPECT_EQ(group.memory_left, 100000u);
}

TEST_F(ControlGroupTest, ThePageCacheIsFreeMemory) {
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  write("sys/fs/cgroup/a/memory.current", "900000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 200000\nfile 700000\nshmem 50000\nfile_dirty 7\n");
  EXPECT_EQ(read().memory_left, 750000u);
}

TEST_F(ControlGroupTest, VersionOne) {
  write("proc/self/cgroup", "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "600000\n");
  write("sys/fs/cgroup/memory/docker/x/memory.stat", "cache 1\ntotal_cache 300000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const ControlGroup group = read();
  EXPECT_EQ(group.cpus, 0.5);
  EXPECT_EQ(group.memory_limit, 1000000u);
  EXPECT_EQ(group.memory_left, 700000u);
  EXPECT_EQ(group.describe(), "0.5 processors, 976.56 KiB of memory");
}

// Inside of a container the path is the host's, and the files lie at the mount's root.
TEST_F(ControlGroupTest, APathThatOnlyTheHostSees) {
  write("proc/self/cgroup", "0::/kubepods/pod1/c\n");
  write("sys/fs/cgroup/memory.max", "1000000\n");
  write("sys/fs/cgroup/memory.current", "1500000\n");
  EXPECT_EQ(read().memory_left, 0u);
}

TEST_F(ControlGroupTest, FilesThatSayNothing) {
  write("proc/self/cgroup", "nonsense\n0:\n::\n0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "much\n");
  write("sys/fs/cgroup/a/cpu.max", "100000 0\n");
  EXPECT_FALSE(read().any());
}

}  // namespace
}  // namespace fasa
