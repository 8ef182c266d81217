// Paths that may be read: regular files up to a size limit, and pipes from the shell where allowed.
// Files that might never end are rejected.
#include "runtime/io/input_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr FileRule kSmall = {.what = "note", .max_bytes = 1000, .pipes = FileRule::Pipes::kRefused};
constexpr FileRule kPiped = {.what = "note", .max_bytes = 1000, .pipes = FileRule::Pipes::kOfShell};

std::string error_of(const std::string& path, const FileRule& rule) {
  try {
    read_file(path, rule);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

class InputFile : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return dir_.path() + "/" + name; }
  llm_test::TempDir dir_;
};

TEST_F(InputFile, RegularFilesAreReadWhole) {
  std::string bytes(300000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  dir_.write("some", bytes);
  dir_.write("none", "");
  EXPECT_EQ(read_file(at("some")), bytes);
  EXPECT_EQ(read_file(at("none")), "");
  std::filesystem::create_symlink(at("some"), at("link"));
  EXPECT_EQ(read_file(at("link")), bytes);
  EXPECT_GT(read_file("/proc/self/status").size(), 100u);  // its size is reported as 0
}

TEST_F(InputFile, TheLimitIsTheLastSizeAllowed) {
  dir_.write("fits", std::string(1000, 'x'));
  dir_.write("too-large", std::string(1001, 'x'));
  EXPECT_EQ(read_file(at("fits"), kSmall).size(), 1000u);
  EXPECT_THAT(error_of(at("too-large"), kSmall),
              AllOf(HasSubstr("too-large: the note cannot be read"), HasSubstr("1001 B"),
                    HasSubstr("at most 1000 B")));
  dir_.write("hole", "x");
  ASSERT_EQ(::truncate(at("hole").c_str(), off_t{1} << 40), 0);
  EXPECT_THAT(error_of(at("hole"), {}), HasSubstr("allowed: at most 64.00 MiB"));
}

TEST_F(InputFile, WhatIsNoFileIsNamed) {
  EXPECT_THAT(error_of(at("nowhere"), kSmall), HasSubstr("No such file"));
  EXPECT_THAT(error_of(dir_.path(), kPiped), HasSubstr("it is a folder"));
  for (const char* device : {"/dev/zero", "/dev/null", "/dev/full"}) {
    EXPECT_THAT(error_of(device, kPiped), HasSubstr("it is a device")) << device;
  }
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  for (const FileRule& rule : {kSmall, kPiped}) {
    EXPECT_THAT(error_of(at("fifo"), rule), HasSubstr("it is a named pipe"));
  }
}

TEST_F(InputFile, ASocketIsNone) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = at("socket");
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(error_of(path, kPiped), HasSubstr("cannot be read"));
  ::close(socket);
}

// A path to a pipe, as a shell passes it for `<(command)`.
class ShellPipe {
 public:
  ShellPipe() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  ~ShellPipe() {
    ::close(ends_[0]);
    if (!closed_) close();
  }
  ShellPipe(const ShellPipe&) = delete;  // the destructor closes
  ShellPipe& operator=(const ShellPipe&) = delete;
  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }
  void write(const std::string& text) const {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void close() {
    ::close(ends_[1]);
    closed_ = true;
  }

 private:
  int ends_[2] = {-1, -1};
  bool closed_ = false;
};

TEST_F(InputFile, PipesOfTheShellAreReadToTheirEnd) {
  ShellPipe written;
  written.write("all of it");
  written.close();
  EXPECT_EQ(read_file(written.path(), kPiped), "all of it");

  ShellPipe slow;
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) slow.write("bit ");
    slow.close();
  });
  EXPECT_EQ(read_file(slow.path(), kPiped).size(), 400u);
  writer.join();
}

TEST_F(InputFile, PipesKeepTheLimitAndTheRule) {
  ShellPipe large;
  large.write(std::string(2000, 'x'));  // the pipe stays open
  EXPECT_THAT(error_of(large.path(), kPiped), HasSubstr("at most 1000 B"));
  ShellPipe refused;
  refused.write("x");
  EXPECT_THAT(error_of(refused.path(), kSmall), HasSubstr("it is a pipe; allowed: a regular file"));
}

}  // namespace
}  // namespace fasa
