#include "offload/emulated/emulated_stream.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/parallel.h"

namespace fasa {
namespace {

thread_local bool is_worker = false;

}  // namespace

bool EmulatedStream::on_worker() { return is_worker; }

void EmulatedShared::wait_for_all(std::unique_lock<std::mutex>& lock) {
  const uint64_t target = last_sequence;
  const auto all_passed = [&] {
    return std::all_of(streams.begin(), streams.end(),
                       [&](const EmulatedStream* stream) { return stream->oldest() > target; });
  };
  if (all_passed()) return;
  HostWait wait(*this, target);
  passed.wait(lock, all_passed);
}

EmulatedShared::HostWait::HostWait(EmulatedShared& shared, uint64_t wanted)
    : target(wanted), owner(shared), next(shared.host_waits) {
  shared.host_waits = this;
}

EmulatedShared::HostWait::~HostWait() {
  HostWait** link = &owner.host_waits;
  while (*link != this) link = &(*link)->next;
  *link = next;
}

bool EmulatedShared::anybody_waits(uint64_t first, uint64_t end) const {
  for (const HostWait* wait = host_waits; wait != nullptr; wait = wait->next) {
    if (first <= wait->target && wait->target < end) return true;
  }
  return false;
}

// Starts the thread last, after everything that can fail.
EmulatedStream::EmulatedStream(EmulatedShared& shared, StreamPriority priority, std::string name,
                               int threads)
    : shared_(shared),
      name_(std::move(name)),
      arena_(threads),
      timeline_key_(shared.hook.open_stream(name_)),
      last_work_{.stream = timeline_key_, .name = nullptr, .tag = {}} {
  const std::lock_guard lock(shared_.mutex);
  std::optional<VirtualClock::StreamKey> opened;
  try {
    shared_.streams.reserve(shared_.streams.size() + 1);
    const std::string short_name = name_.substr(0, 15);
    opened = clock_key_ = shared_.clock.open_stream(priority);
    start_worker();
    pthread_setname_np(worker_.native_handle(), short_name.c_str());
  } catch (...) {
    if (opened) shared_.clock.close_stream(*opened);
    shared_.hook.close_stream(timeline_key_);
    throw;
  }
  shared_.streams.push_back(this);
}

void EmulatedStream::start_worker() {
  try {
    worker_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw DeviceError(
        fmt::format("emulated: cannot start the thread of the stream '{}': {}; allow this process "
                    "more threads, or set fewer streams (prefetch.streams)",
                    name_, error.what()));
  }
}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock(shared_.mutex);
    stopping_ = true;
    ready_.notify_one();
  }
  worker_.join();
  const std::lock_guard lock(shared_.mutex);
  std::erase(shared_.streams, this);
  shared_.hook.close_stream(timeline_key_);
  shared_.clock.close_stream(clock_key_);
}

std::unique_ptr<TimelineEntry> EmulatedStream::entry_of(TimelineEntry::Kind kind, const char* name,
                                                        OperationTag tag) const {
  if (shared_.hook.timeline() == nullptr) return nullptr;
  auto entry = std::make_unique<TimelineEntry>();
  entry->kind = kind;
  entry->stream = timeline_key_;
  entry->name = name;
  entry->tag = tag;
  return entry;
}

void EmulatedStream::push(Operation operation) {
  operation.sequence = ++shared_.last_sequence;
  operation.not_before = shared_.clock.now();
  if (operation.entry != nullptr) operation.entry->enqueued = operation.not_before;
  queue_.push_back(std::move(operation));
  if (queue_.size() == 1) ready_.notify_one();
}

void EmulatedStream::enqueue(const Kind& kind, std::function<KernelWork()> work) {
  Operation operation;
  operation.kind = kind;
  operation.work = std::move(work);
  operation.entry = entry_of(TimelineEntry::Kind::kWork, kind.name, kind.tag);
  const std::lock_guard lock(shared_.mutex);
  last_work_.name = kind.name;
  last_work_.tag = kind.tag;
  push(std::move(operation));
}

std::shared_ptr<Recording> EmulatedStream::record() {
  auto recording = std::make_shared<Recording>();
  Operation operation;
  operation.records = recording;
  const std::lock_guard lock(shared_.mutex);
  recording->source = last_work_;
  push(std::move(operation));
  return recording;
}

void EmulatedStream::wait(std::shared_ptr<const Recording> recording, OperationTag tag) {
  Operation operation;
  operation.entry = entry_of(TimelineEntry::Kind::kWait, "wait", tag);
  if (operation.entry != nullptr) operation.entry->awaited = recording->source;
  operation.waits = std::move(recording);
  const std::lock_guard lock(shared_.mutex);
  push(std::move(operation));
}

void EmulatedStream::run() {
  is_worker = true;
  std::unique_lock lock(shared_.mutex);
  for (;;) {
    ready_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Operation& operation = queue_.front();  // its address is stable while others are pushed
    execute(operation, lock);
    const uint64_t sequence = operation.sequence;
    queue_.pop_front();
    if (shared_.anybody_waits(sequence, oldest())) shared_.passed.notify_all();
  }
}

void EmulatedStream::execute(Operation& operation, std::unique_lock<std::mutex>& lock) {
  if (operation.waits != nullptr) {
    const Recording& recording = *operation.waits;
    if (!recording.executed) {
      ++shared_.stream_waits;
      shared_.recorded.wait(lock, [&] { return recording.executed; });
      --shared_.stream_waits;
    }
    if (failure_ == nullptr) failure_ = recording.failure;
    shared_.clock.add_wait(clock_key_, operation.sequence, recording.mark,
                           std::move(operation.entry));
  } else if (operation.records != nullptr) {
    Recording& recording = *operation.records;
    recording.executed = true;
    recording.failure = failure_;
    shared_.clock.add_mark(clock_key_, operation.sequence, operation.not_before, recording.mark);
    if (shared_.stream_waits > 0) shared_.recorded.notify_all();
  } else if (failure_ == nullptr) {
    execute_work(operation, lock);
  }
}

void EmulatedStream::execute_work(Operation& operation, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  KernelWork done;
  CallSeconds seconds;
  std::string reason;
  bool failed = true;
  try {
    if (operation.kind.where == Where::kArena) {
      execute_in(arena_, [&] { done = operation.work(); });
    } else {
      done = operation.work();
    }
    if (operation.kind.call_seconds) seconds = operation.kind.call_seconds();
    seconds.fixed += operation.kind.seconds;
    failed = false;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
    reason = "unknown exception";
  }
  operation.work = nullptr;  // frees captures before the host sees completion
  lock.lock();
  if (failed) {
    failure_ = std::make_shared<const std::string>(
        fmt::format("operation '{}' failed on stream '{}' of emulated: {}", operation.kind.name,
                    name_, reason));
    return;
  }
  count(done);
  shared_.clock.add_work(clock_key_, operation.sequence, operation.not_before, seconds, done,
                         std::move(operation.entry));
}

void EmulatedStream::count(const KernelWork& work) {
  shared_.totals.h2d_bytes += work.h2d_bytes;
  shared_.totals.d2h_bytes += work.d2h_bytes;
  shared_.totals.h2d_operations += work.h2d_bytes > 0;
  shared_.totals.d2h_operations += work.d2h_bytes > 0;
}

}  // namespace fasa
