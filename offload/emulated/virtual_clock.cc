#include "offload/emulated/virtual_clock.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace fasa {

VirtualClock::StreamKey VirtualClock::open_stream(StreamPriority priority) {
  StreamState state{};
  state.priority = priority;
  streams_.emplace(next_stream_, std::move(state));
  return next_stream_++;
}

void VirtualClock::close_stream(StreamKey stream) {
  const auto found = streams_.find(stream);
  found->second.closed = true;
  if (found->second.operations.empty()) streams_.erase(found);
}

void VirtualClock::add_work(StreamKey stream, uint64_t sequence, double not_before,
                            const CallSeconds& least, KernelWork work,
                            std::unique_ptr<TimelineEntry> entry) {
  Operation operation;
  const double instructions = static_cast<double>(work.device_bytes) * least.byte;
  if (least.read < 1) {
    work.device_bytes = static_cast<uint64_t>(static_cast<double>(work.device_bytes) * least.read);
  }
  operation.entry = std::move(entry);
  if (operation.entry != nullptr) operation.entry->work = work;
  operation.sequence = sequence;
  operation.not_before = not_before;
  const double byte = 1 / rates_.memory_bandwidth;
  const double product =
      rates_.operations > 0 ? std::max(1 / rates_.operations, least.operation) : 0;
  operation.link_after_seconds = least.fixed + static_cast<double>(work.bytes_before_link) * byte;
  operation.busy_seconds =
      least.fixed + std::max({instructions, static_cast<double>(work.device_bytes) * byte,
                              static_cast<double>(work.operations) * product});
  operation.link_bytes = {work.h2d_bytes, work.d2h_bytes};
  streams_.at(stream).operations.push_back(std::move(operation));
}

void VirtualClock::add_mark(StreamKey stream, uint64_t sequence, double not_before,
                            std::shared_ptr<Mark> mark) {
  Operation operation;
  operation.sequence = sequence;
  operation.not_before = not_before;
  operation.mark = std::move(mark);
  streams_.at(stream).operations.push_back(std::move(operation));
}

void VirtualClock::add_wait(StreamKey stream, uint64_t sequence, std::shared_ptr<const Mark> mark,
                            std::unique_ptr<TimelineEntry> entry) {
  Operation operation;
  operation.entry = std::move(entry);
  operation.sequence = sequence;
  operation.wait = std::move(mark);
  streams_.at(stream).operations.push_back(std::move(operation));
}

void VirtualClock::set_timeline(Timeline* timeline) {
  for (auto& [key, state] : streams_) {
    for (Operation& operation : state.operations) operation.entry = nullptr;
  }
  timeline_ = timeline;
}

void VirtualClock::note_end(Operation& operation, double start, double end) const {
  if (operation.entry == nullptr || timeline_ == nullptr) return;
  operation.entry->span = {start, end};
  timeline_->add(*operation.entry);
}

// The stream was idle from the later of its last operation and the host's request until the mark.
void VirtualClock::note_wait(const StreamState& state, Operation& wait) const {
  if (wait.entry == nullptr) return;
  const double start = std::max(state.time, wait.entry->enqueued);
  if (wait.wait->seconds > start) note_end(wait, start, wait.wait->seconds);
}

// Accounts for a part of the operation's bytes on the link.
void VirtualClock::note_link(Operation& operation, const Decision& decision, uint64_t bytes) const {
  if (operation.entry == nullptr) return;
  const auto d = static_cast<size_t>(decision.direction);
  const KernelWork& work = operation.entry->work;
  const uint64_t all = decision.direction == 0 ? work.h2d_bytes : work.d2h_bytes;
  TimeSpan& span = operation.entry->link[d];
  if (operation.link_bytes[d] == all) span.start = decision.time;
  span.end = decision.time + link_seconds(bytes);
}

// Resolves the stream's first operation unless a mark or the link delays it.
bool VirtualClock::step_head(StreamState& state) {
  if (state.operations.empty() || state.head_started) return false;
  Operation& head = state.operations.front();
  if (head.wait != nullptr && !head.wait->resolved) return false;
  const double awaited = head.wait != nullptr ? head.wait->seconds : 0;
  const double start = std::max({state.time, head.not_before, awaited});
  const double end = start + head.busy_seconds;
  if (head.link_bytes[0] > 0 || head.link_bytes[1] > 0) {
    state.head_started = true;
    state.head_start = start;
    state.head_ready = start + head.link_after_seconds;
    state.head_end = end;
    return false;
  }
  if (head.wait != nullptr) {
    note_wait(state, head);
  } else {
    note_end(head, start, end);
  }
  state.time = end;
  if (head.mark != nullptr) *head.mark = {true, end};
  state.operations.pop_front();
  return true;
}

void VirtualClock::settle() {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& [key, state] : streams_) {
      while (step_head(state)) changed = true;
    }
  }
  std::erase_if(streams_, [](const auto& entry) {
    return entry.second.closed && entry.second.operations.empty();
  });
}

// The next direction of the link to become free, and its next user: the highest priority among the
// waiting operations, then the longest waiting, then the first enqueued.
VirtualClock::Decision VirtualClock::next_decision() {
  Decision best;
  for (int direction = 0; direction < kDirections; ++direction) {
    const auto d = static_cast<size_t>(direction);
    double first_ready = std::numeric_limits<double>::infinity();
    for (const auto& [key, state] : streams_) {
      if (!state.head_started || state.operations.front().link_bytes[d] == 0) continue;
      first_ready = std::min(first_ready, state.head_ready);
    }
    if (first_ready == std::numeric_limits<double>::infinity()) continue;
    const double time = std::max(link_free_[d], first_ready);
    if (best.stream != nullptr && best.time <= time) continue;
    best = {time, direction, nullptr};
    for (auto& [key, state] : streams_) {
      if (!state.head_started || state.operations.front().link_bytes[d] == 0) continue;
      if (state.head_ready > time) continue;
      const auto rank = [](const StreamState& s) {
        return std::tuple(s.priority != StreamPriority::kHigh, s.head_ready,
                          s.operations.front().sequence);
      };
      if (best.stream == nullptr || rank(state) < rank(*best.stream)) best.stream = &state;
    }
  }
  return best;
}

void VirtualClock::serve(const Decision& decision) {
  StreamState& state = *decision.stream;
  Operation& head = state.operations.front();
  const auto d = static_cast<size_t>(decision.direction);
  const uint64_t bytes = std::min(head.link_bytes[d], rates_.chunk_bytes);
  note_link(head, decision, bytes);
  link_free_[d] = decision.time + link_seconds(bytes);
  head.link_bytes[d] -= bytes;
  if (head.link_bytes[d] > 0) return;
  state.head_end = std::max(state.head_end, link_free_[d] + rates_.link_latency);
  if (head.link_bytes[1 - d] > 0) return;
  note_end(head, state.head_start, state.head_end);
  state.time = state.head_end;
  state.head_started = false;
  state.operations.pop_front();
  settle();
}

template <typename Resolved>
void VirtualClock::run_until(Resolved resolved) {
  settle();
  while (!resolved()) {
    const Decision decision = next_decision();
    if (decision.stream == nullptr)
      throw std::logic_error("virtual clock: a wait for an operation that was never added");
    serve(decision);
  }
}

// Operations enqueued from here on start no earlier than now, so earlier link use is final. Without
// this, transfers that the host never waits for would accumulate.
void VirtualClock::catch_up() {
  for (;;) {
    const Decision decision = next_decision();
    if (decision.stream == nullptr || decision.time >= now_) return;
    serve(decision);
  }
}

double VirtualClock::wait_for(const Mark& mark) {
  run_until([&] { return mark.resolved; });
  now_ = std::max(now_, mark.seconds);
  catch_up();
  return mark.seconds;
}

double VirtualClock::wait_for(StreamKey stream, uint64_t sequence) {
  const auto passed = [&] {
    const auto& operations = streams_.at(stream).operations;
    return operations.empty() || operations.front().sequence > sequence;
  };
  run_until(passed);
  const double end = streams_.at(stream).time;
  now_ = std::max(now_, end);
  catch_up();
  return end;
}

size_t VirtualClock::pending_operations() const {
  size_t count = 0;
  for (const auto& [key, state] : streams_) count += state.operations.size();
  return count;
}

}  // namespace fasa
