#include "tests/support/stepped_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "kernels/run_on_host.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

struct Recording {
  bool executed = false;
  double seconds = 0;
  std::optional<std::string> failure;  // of the preceding work
  std::string source;                  // the preceding work and its stream, in words
};

struct SteppedEvent {
  std::shared_ptr<Recording> latest;  // null: never recorded
};

SteppedEvent& event_of(EventView event) { return *static_cast<SteppedEvent*>(event.native); }

void throw_failure(const std::optional<std::string>& failure) {
  if (failure) throw DeviceError(*failure);
}

}  // namespace

class SteppedStream {
 public:
  struct Operation {
    uint64_t sequence = 0;
    const char* name = nullptr;
    OperationTag tag;
    std::function<KernelWork()> work;
    std::function<void()> half;
    std::shared_ptr<Recording> records;
    std::shared_ptr<const Recording> waits;
  };

  SteppedStream(SteppedDevice& owner, std::string_view stream_name)
      : device(owner), name(stream_name) {}
  bool runnable() const {
    return !queue.empty() && (queue.front().waits == nullptr || queue.front().waits->executed);
  }

  SteppedDevice& device;
  const std::string name;
  std::deque<Operation> queue;
  std::optional<std::string> failure;  // the first failure; later work is skipped
  const char* last_work = "nothing";   // enqueued last
};

namespace {

SteppedStream& stream_of(StreamView stream) { return *static_cast<SteppedStream*>(stream.native); }
StreamView view_of(SteppedStream& stream) { return {DeviceKind::kEmulated, &stream}; }

DeviceTraits traits_of(const DeviceOptions& options) {
  DeviceTraits traits = kEmulatedTraits;
  traits.rates.link_bandwidth = options.link_bandwidth;
  return traits;
}

}  // namespace

SteppedDevice::SteppedDevice(StepPolicy policy, const DeviceOptions& options, DeviceKind kind)
    : Device({.kind = kind, .name = "stepped", .traits = traits_of(options), .host_work = this}),
      policy_(std::move(policy)),
      memory_(options, /*unified=*/false),
      arena_(options.threads > 0 ? options.threads : 1) {}

SteppedDevice::~SteppedDevice() = default;

// Stepping.

void SteppedDevice::set_policy(StepPolicy policy) {
  const std::lock_guard lock(mutex_);
  policy_ = std::move(policy);
}

std::vector<std::string> SteppedDevice::runnable() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& stream : streams_) {
    if (stream->runnable()) names.push_back(stream->name);
  }
  return names;
}

bool SteppedDevice::step(StreamView stream) {
  const std::lock_guard lock(mutex_);
  if (!stream_of(stream).runnable()) return false;
  execute(stream_of(stream));
  return true;
}

bool SteppedDevice::step_once() {
  std::vector<RunnableStream> choices;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i]->runnable()) {
      choices.push_back({i, streams_[i]->name, streams_[i]->queue.front().sequence});
    }
  }
  if (choices.empty()) return false;
  execute(*streams_[choices[policy_(choices)].index]);
  return true;
}

void SteppedDevice::step_until(const std::function<bool()>& reached) {
  while (!reached()) {
    if (!step_once()) throw std::logic_error("stepped device: waits for what never was enqueued");
  }
}

void SteppedDevice::run_until_idle() {
  const std::lock_guard lock(mutex_);
  while (step_once()) {
  }
}

void SteppedDevice::run_random(uint64_t seed) {
  const std::lock_guard lock(mutex_);
  StepPolicy kept = std::exchange(policy_, random_order(seed));
  run_until_idle();
  policy_ = std::move(kept);
}

bool SteppedDevice::run_until(std::string_view stream, std::string_view operation, int layer) {
  const std::lock_guard lock(mutex_);
  const auto reached = [&] {
    return std::any_of(streams_.begin(), streams_.end(), [&](const auto& candidate) {
      if (candidate->name != stream || candidate->queue.empty()) return false;
      const SteppedStream::Operation& next = candidate->queue.front();
      return next.work != nullptr && next.name == operation && next.tag.layer == layer;
    });
  };
  while (!reached()) {
    if (!step_once()) return false;
  }
  return true;
}

std::string SteppedDevice::wait_name(StreamView stream, EventView event) {
  const std::lock_guard lock(mutex_);
  const auto& recording = event_of(event).latest;
  return recording == nullptr ? ""
                              : fmt::format("{} for {}", stream_of(stream).name, recording->source);
}

StreamView SteppedDevice::find_stream(std::string_view name) {
  const std::lock_guard lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream->name == name) return view_of(*stream);
  }
  throw UsageError(fmt::format("the stepped device has no stream '{}'", name));
}

std::string SteppedDevice::next_operation(std::string_view stream) {
  const std::lock_guard lock(mutex_);
  const auto& queue = stream_of(find_stream(stream)).queue;
  return queue.empty() ? "" : queue.front().name;
}

void SteppedDevice::execute(SteppedStream& stream) {
  SteppedStream::Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  ++executed_;
  if (operation.waits != nullptr) {
    if (!stream.failure) stream.failure = operation.waits->failure;
  } else if (operation.records != nullptr) {
    operation.records->executed = true;
    operation.records->seconds = static_cast<double>(executed_);
    operation.records->failure = stream.failure;
  } else if (!stream.failure) {
    KernelWork done;
    std::string reason = "unknown exception";
    bool failed = true;
    try {
      done = execute_work(stream, operation.name, operation.work, operation.half);
      failed = false;
    } catch (const std::exception& error) {
      reason = error.what();
    } catch (...) {
    }
    if (failed) {
      stream.failure = fmt::format("operation '{}' failed on stream '{}' of stepped: {}",
                                   operation.name, stream.name, reason);
    }
    totals_.h2d_bytes += done.h2d_bytes;
    totals_.d2h_bytes += done.d2h_bytes;
    totals_.h2d_operations += done.h2d_bytes > 0;
    totals_.d2h_operations += done.d2h_bytes > 0;
  }
}

KernelWork SteppedDevice::execute_work(const SteppedStream& stream, const char* name,
                                       const std::function<KernelWork()>& work,
                                       const std::function<void()>& half) {
  if (fails_ && fails_(name)) {
    if (half) half();
    throw std::runtime_error(fmt::format("injected on {}", stream.name));
  }
  KernelWork done;
  arena_.execute([&] { done = work(); });
  return done;
}

void SteppedDevice::on_run(std::function<bool(const char* name)> fails) {
  const std::lock_guard lock(mutex_);
  fails_ = std::move(fails);
}

// Device.

Stream SteppedDevice::create_stream(StreamPriority, std::string_view name) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<SteppedStream>(*this, name));
  return {view_of(*streams_.back()),
          [](StreamView stream) noexcept { stream_of(stream).device.destroy(stream_of(stream)); }};
}

void SteppedDevice::destroy(SteppedStream& stream) noexcept {
  const std::lock_guard lock(mutex_);
  step_until([&] { return stream.queue.empty(); });
  std::erase_if(streams_, [&](const auto& candidate) { return candidate.get() == &stream; });
}

Event SteppedDevice::create_event() {
  return {{new SteppedEvent}, [](EventView event) noexcept { delete &event_of(event); }};
}

void SteppedDevice::run(StreamView stream, const char* name, std::function<KernelWork()> work,
                        OperationTag tag) {
  push(stream, name, tag, std::move(work));
}

void SteppedDevice::push(StreamView stream, const char* name, OperationTag tag,
                         std::function<KernelWork()> work, std::function<void()> half) {
  const std::lock_guard lock(mutex_);
  SteppedStream::Operation operation;
  operation.sequence = ++enqueued_;
  operation.name = name;
  operation.tag = tag;
  if (work != nullptr) stream_of(stream).last_work = name;
  operation.work = std::move(work);
  operation.half = std::move(half);
  stream_of(stream).queue.push_back(std::move(operation));
}

void SteppedDevice::do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) {
  run(
      stream, kernel_name(call), [call] { return run_on_host(call); }, tag);
}

void SteppedDevice::record(EventView event, StreamView stream) {
  const std::lock_guard lock(mutex_);
  event_of(event).latest = std::make_shared<Recording>();
  event_of(event).latest->source =
      fmt::format("{} of {}", stream_of(stream).last_work, stream_of(stream).name);
  push(stream, "record", {}, nullptr);
  stream_of(stream).queue.back().records = event_of(event).latest;
}

void SteppedDevice::do_wait(StreamView stream, EventView event, OperationTag tag) {
  const std::lock_guard lock(mutex_);
  if (event_of(event).latest == nullptr) return;
  push(stream, "wait", tag, nullptr);
  stream_of(stream).queue.back().waits = event_of(event).latest;
}

void SteppedDevice::do_synchronize(StreamView stream) {
  const std::lock_guard lock(mutex_);
  SteppedStream& target = stream_of(stream);
  const uint64_t last = enqueued_;
  step_until([&] { return target.queue.empty() || target.queue.front().sequence > last; });
  throw_failure(target.failure);
}

bool SteppedDevice::passed(EventView event, Patience patience) {
  const std::lock_guard lock(mutex_);
  const auto recording = event_of(event).latest;
  if (recording == nullptr) return true;
  if (patience == Patience::kUntilPassed) step_until([&] { return recording->executed; });
  throw_failure(recording->failure);
  return recording->executed;
}

double SteppedDevice::seconds_at(EventView event) {
  if (event_of(event).latest == nullptr) {
    throw UsageError("seconds_at: the event was never recorded");
  }
  synchronize(event);
  return event_of(event).latest->seconds;
}

void SteppedDevice::do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                            OperationTag tag) {
  for (const CopyRange& range : ranges) {
    if (range.bytes == 0) continue;
    push(
        stream, copy_name(kind), tag,
        [range, work = copy_work(kind, range.bytes)] {
          std::memcpy(range.destination, range.source, range.bytes);
          return work;
        },
        [range] { std::memcpy(range.destination, range.source, range.bytes / 2); });
  }
}

void SteppedDevice::do_fill(void* destination, int byte, size_t bytes, StreamView stream,
                            OperationTag tag) {
  if (bytes == 0) return;
  push(
      stream, "fill", tag,
      [=] {
        std::memset(destination, byte, bytes);
        return KernelWork{};
      },
      [=] { std::memset(destination, byte, bytes / 2); });
}

TransferTotals SteppedDevice::transfers() {
  const std::lock_guard lock(mutex_);
  run_until_idle();
  return totals_;
}

// Zeroed by default: a test that drops a wait must not read invalid pointers.
std::byte* SteppedDevice::do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  std::byte* data = memory_.allocate(space, bytes, purpose);
  if (data != nullptr) std::memset(data, new_memory_, bytes);
  return data;
}

void SteppedDevice::do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept {
  memory_.free(space, data, bytes);
}

}  // namespace fasa
