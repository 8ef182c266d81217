// Work that takes longer than the thread that gets it may wait: a bounded queue and one thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace fasa::serve {

class JobQueue {
 public:
  explicit JobQueue(size_t max_waiting);
  // What waits is dropped.
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;  // its thread refers to it
  JobQueue& operator=(const JobQueue&) = delete;

  // False: as many wait as may. Any thread; jobs must not throw.
  bool add(std::function<void()> job);

 private:
  void run();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fasa::serve
