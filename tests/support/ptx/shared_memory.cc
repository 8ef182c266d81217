#include "tests/support/ptx/shared_memory.h"

#include <fmt/format.h>

#include <cstring>

namespace fasa::ptx {
namespace {

constexpr int kWarp = 32;  // threads

}  // namespace

void SharedMemory::clear(size_t bytes) {
  bytes_.assign(bytes, std::byte{0xcd});
  if (shadow_.size() < bytes) shadow_.resize(bytes);
  ++block_;
  barriers_ = 0;
}

// Whether an earlier access of the thread `other` is ordered before this one.
bool SharedMemory::ordered(const Access& access, int16_t other, uint32_t barriers, uint16_t then,
                           uint16_t now) const {
  if (barriers != barriers_ || other == access.thread || other == kNone) return true;
  return other >= 0 && other / kWarp == access.thread / kWarp && then != now;
}

std::string SharedMemory::note_write(const Access& access, uint64_t at, Shadow& shadow) {
  const uint16_t now = access.strict ? access.clock.syncs : access.clock.meetings;
  if (!(access.atomic && shadow.atomic) &&
      !ordered(access, shadow.reader, shadow.read, shadow.read_clock, now)) {
    return fmt::format(
        "offset {}: overwrites what is read by a load of thread {}, without a "
        "barrier between",
        at, shadow.reader);
  }
  shadow.writer = static_cast<int16_t>(access.thread);
  shadow.written = barriers_;
  shadow.write_clock = access.clock.syncs;
  shadow.defined = access.value_defined;
  shadow.atomic = access.atomic;
  return "";
}

void SharedMemory::note_read(const Access& access, Shadow& shadow) {
  const bool other_warp = shadow.read == barriers_ && shadow.reader != kNone &&
                          shadow.reader != access.thread &&
                          (shadow.reader < 0 || shadow.reader / kWarp != access.thread / kWarp);
  shadow.reader = other_warp ? kSeveralWarps : static_cast<int16_t>(access.thread);
  shadow.read = barriers_;
  shadow.read_clock = access.strict ? access.clock.syncs : access.clock.meetings;
}

std::string SharedMemory::access(const Access& access, bool* defined) {
  if (access.offset > bytes_.size() || access.bytes > bytes_.size() - access.offset) {
    return fmt::format("offset {} is outside the block's shared memory of {} bytes", access.offset,
                       bytes_.size());
  }
  for (uint64_t at = access.offset; at < access.offset + access.bytes; ++at) {
    Shadow& shadow = shadow_[at];
    if (shadow.block != block_) shadow = Shadow(), shadow.block = block_;
    if (shadow.pending) return "part of an asynchronous copy that was not waited for";
    const bool same = access.value != nullptr && bytes_[at] == access.value[at - access.offset];
    if (!(access.atomic && shadow.atomic) && !same &&
        !ordered(access, shadow.writer, shadow.written, shadow.write_clock, access.clock.syncs)) {
      return fmt::format("offset {}: {} of thread {}, without a barrier between", at,
                         access.write ? "races with a store" : "reads what is written by a store",
                         shadow.writer);
    }
    if (access.write) {
      std::string error = note_write(access, at, shadow);
      if (!error.empty()) return error;
    } else {
      note_read(access, shadow);
    }
    if (defined != nullptr && !shadow.defined) *defined = false;
  }
  return "";
}

void SharedMemory::begin_copy(uint64_t offset, unsigned bytes) {
  for (uint64_t at = offset; at < offset + bytes; ++at) shadow_[at].pending = true;
}

void SharedMemory::finish_copy(uint64_t offset, const std::byte* from, unsigned bytes, int thread,
                               const WarpClock& clock) {
  std::memcpy(bytes_.data() + offset, from, bytes);
  for (uint64_t at = offset; at < offset + bytes; ++at) {
    Shadow& shadow = shadow_[at];
    shadow.pending = false;
    shadow.defined = true;
    shadow.atomic = false;
    shadow.writer = static_cast<int16_t>(thread);
    shadow.written = barriers_;
    shadow.write_clock = clock.syncs;
  }
}

}  // namespace fasa::ptx
