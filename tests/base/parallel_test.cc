#include "runtime/base/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace fasa {
namespace {

TEST(Parallel, EveryIndexOnceAndSeenByTheCaller) {
  tbb::task_arena arena(4);
  for (const int count : {0, 1, 7, 1000}) {
    std::vector<int> visits(static_cast<size_t>(count), 0);
    execute_in(arena,
               [&] { parallel_for(0, count, [&](int i) { ++visits[static_cast<size_t>(i)]; }); });
    EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1)) << count;
  }
}

TEST(Parallel, BlocksCoverTheRange) {
  std::vector<int> visits(1000, 0);
  parallel_blocks(size_t{10}, visits.size(), size_t{64}, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) ++visits[i];
  });
  for (size_t i = 0; i < visits.size(); ++i) EXPECT_EQ(visits[i], i < 10 ? 0 : 1) << i;
}

TEST(Parallel, PassesExceptionsOn) {
  EXPECT_THROW(parallel_for(0, 100,
                            [](int i) {
                              if (i == 57) throw std::runtime_error("57");
                            }),
               std::runtime_error);
}

}  // namespace
}  // namespace fasa
