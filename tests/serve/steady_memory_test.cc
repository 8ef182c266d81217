// Once its budgets are full, a server's memory does not grow with the number of answered requests.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include "tests/serve/local_server.h"

namespace fasa::serve {
namespace {

size_t bytes_in_use() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(SteadyMemoryTest, RequestsLeaveNothingBehind) {
  if (bytes_in_use() == 0) GTEST_SKIP() << "this allocator does not count";
  constexpr int kRequests = 500;  // per period
  LocalServer server("cpu", {.max_sequences = 4, .log_bytes = size_t{64} << 10},
                     uint64_t{24} << 20);
  int request = 0;
  const auto peak_of_period = [&] {
    size_t peak = 0;
    for (int i = 0; i < kRequests; ++i, ++request) {
      const size_t from = static_cast<size_t>(request % 3000);
      const auto prompt = bytes_of(std::to_string(request) + some_text(from, 20 + from % 80));
      server.start(prompt, 3)->wait();
      peak = std::max(peak, bytes_in_use());
    }
    return static_cast<double>(peak);
  };
  peak_of_period();
  const double before = peak_of_period();
  peak_of_period();
  const double after = peak_of_period();
  EXPECT_GT(server.loop().status().evictions, static_cast<uint64_t>(2 * kRequests));
  EXPECT_LT(after - before, 100.0 * 2 * kRequests) << "bytes; 100 a request are allowed";
}

}  // namespace
}  // namespace fasa::serve
