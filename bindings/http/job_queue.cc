#include "bindings/http/job_queue.h"

#include <utility>

namespace fasa::serve {

JobQueue::JobQueue(size_t max_waiting) : max_waiting_(max_waiting), thread_([this] { run(); }) {}

JobQueue::~JobQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool JobQueue::add(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || jobs_.size() >= max_waiting_) return false;
  jobs_.push_back(std::move(job));
  changed_.notify_one();
  return true;
}

void JobQueue::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace fasa::serve
