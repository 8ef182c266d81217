#include "offload/host/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace fasa {
namespace {

TEST(Topology, ThisMachineHasTheUsualParts) {
  const Topology& machine = Topology::machine();
  ASSERT_FALSE(machine.nodes().empty());
  EXPECT_GE(machine.cores(), 1);
  EXPECT_GE(machine.threads(), machine.cores());
  EXPECT_GT(machine.memory_bytes(), uint64_t{1} << 20);
  EXPECT_TRUE(machine.has_node(machine.node_of_process()));
  EXPECT_TRUE(machine.has_node(machine.node_of_pci("0000:ff:1f.7")));  // nothing there: nearest
  EXPECT_THAT(machine.describe(), ::testing::HasSubstr("NUMA node"));
}

TEST(Topology, TwoNodesAreTold) {
  const Topology two = Topology::synthetic("pack:2 [numa(memory=1GB)] l3:1(size=8MB) core:3 pu:2");
  ASSERT_EQ(two.nodes().size(), 2u);
  EXPECT_EQ(two.node_list(), "0, 1");
  EXPECT_EQ(two.packages(), 2);
  EXPECT_EQ(two.cores(), 6);
  EXPECT_EQ(two.threads(), 12);
  EXPECT_EQ(two.nodes()[1].index, 1);
  EXPECT_EQ(two.nodes()[1].cores, 3);
  EXPECT_EQ(two.nodes()[1].threads, 6);
  EXPECT_EQ(two.memory_bytes(), uint64_t{2} * 1000 * 1000 * 1000);
  ASSERT_EQ(two.caches().size(), 1u);
  EXPECT_EQ(two.caches()[0].name, "L3");
  EXPECT_EQ(two.caches()[0].count, 2);
  EXPECT_TRUE(two.has_node(1));
  EXPECT_FALSE(two.has_node(2));
  EXPECT_TRUE(two.has_node(two.node_of_process()));
}

TEST(Topology, NonsenseIsRefused) {
  EXPECT_THROW(Topology::synthetic("not a machine"), UsageError);
}

}  // namespace
}  // namespace fasa
