// Work that takes longer than the thread that gets it may wait: threads, and a bound on what waits.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <functional>
#include <limits>

namespace fasa::serve {

class JobPool {
 public:
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

  explicit JobPool(size_t threads, size_t max_waiting = kNoLimit)
      : max_waiting_(max_waiting), pool_(threads) {}
  ~JobPool() { stop(); }
  JobPool(const JobPool&) = delete;  // its threads refer to it
  JobPool& operator=(const JobPool&) = delete;

  // Returns false if the queue is full. Call from any thread; jobs must not throw. Jobs begin in
  // the order of these calls.
  bool add(std::function<void()> job);
  // Drops the jobs that wait, and waits for those that run.
  void stop();

 private:
  const size_t max_waiting_;
  std::atomic<size_t> waiting_{0};
  boost::asio::thread_pool pool_;
};

}  // namespace fasa::serve
