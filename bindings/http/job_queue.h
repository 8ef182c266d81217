// A bounded queue of jobs and one thread that runs them, for work that must not block its caller.
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
  // Waiting jobs are dropped.
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;  // its thread refers to it
  JobQueue& operator=(const JobQueue&) = delete;

  // False: the queue is full. Thread-safe; jobs must not throw.
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
