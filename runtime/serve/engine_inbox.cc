#include "runtime/serve/engine_inbox.h"

#include <utility>

namespace fasa::serve {

std::optional<uint64_t> EngineInbox::submit(GenerationRequest request) {
  const std::lock_guard lock(mutex_);
  if (draining_ || stopping_ || failure_ || waiting_count_ >= max_waiting_) return std::nullopt;
  ++waiting_count_;
  submitted_.push_back({next_id_, std::move(request), std::chrono::steady_clock::now()});
  changed_.notify_all();
  return next_id_++;
}

void EngineInbox::post(std::function<void()> command, bool suspends) {
  const std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
  suspends_ |= suspends;
  published_.suspension.busy |= suspends;  // until the loop publishes its status
  changed_.notify_all();
}

void EngineInbox::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void EngineInbox::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

EngineStatus EngineInbox::status() const {
  const std::lock_guard lock(mutex_);
  EngineStatus status = published_;
  status.waiting = waiting_count_;
  return status;
}

bool EngineInbox::idle() const {
  const std::lock_guard lock(mutex_);
  return published_.running == 0 && waiting_count_ == 0;
}

std::optional<std::string> EngineInbox::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool EngineInbox::wait(bool busy, std::optional<std::chrono::steady_clock::time_point> due) {
  std::unique_lock lock(mutex_);
  const auto asked = [&] { return busy || stopping_ || !submitted_.empty() || !commands_.empty(); };
  if (due) {
    changed_.wait_until(lock, *due, asked);
  } else {
    changed_.wait(lock, asked);
  }
  return !stopping_;
}

std::vector<std::function<void()>> EngineInbox::take_commands() {
  const std::lock_guard lock(mutex_);
  suspends_ = false;
  return std::exchange(commands_, {});
}

std::vector<SubmittedRequest> EngineInbox::take_submitted() {
  const std::lock_guard lock(mutex_);
  return std::exchange(submitted_, {});
}

void EngineInbox::publish(const EngineStatus& status, size_t waiting) {
  const std::lock_guard lock(mutex_);
  waiting_count_ = static_cast<int>(waiting + submitted_.size());
  published_ = status;
  published_.suspension.busy |= suspends_;  // requested after the status was made
}

void EngineInbox::count(size_t running, size_t waiting) {
  const std::lock_guard lock(mutex_);
  waiting_count_ = static_cast<int>(waiting + submitted_.size());
  published_.running = static_cast<int>(running);
}

void EngineInbox::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  failure_ = why;
}

}  // namespace fasa::serve
