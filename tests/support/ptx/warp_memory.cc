// A warp's addresses: which memory they mean, and whether they may be used.
#include "tests/support/ptx/warp.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace fasa::ptx {
namespace {

constexpr uint64_t kNullPage = 4096;

template <typename Bytes>
uint64_t address_of_first(const Bytes& bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

}  // namespace

uint64_t Warp::window(Space space, int lane) const {
  if (space == Space::kShared) return address_of_first(block_->shared) - SharedMemory::kBase;
  return address_of_first(local_) +
         static_cast<uint64_t>(lane) * static_cast<uint64_t>(block_->entry->local_bytes);
}

uint64_t Warp::address_of(const Instruction& in, int operand, int lane, int64_t offset) {
  if ((defined(in.slot[operand]) >> lane & 1) == 0) fail("an undefined address", lane);
  const bool wide = in.width[operand] == 8;
  const uint64_t base = wide ? get<uint64_t>(in, operand, lane) : get<uint32_t>(in, operand, lane);
  const uint64_t address = base + static_cast<uint64_t>(offset);
  return wide ? address : address & 0xffffffffu;
}

// A generic address is a host address: in one of the windows, or global.
Warp::Access Warp::in_its_space(int lane, Access access) const {
  if (access.space != Space::kGeneric) return access;
  access.space = Space::kGlobal;
  if (access.address - address_of_first(block_->shared) < block_->shared.size()) {
    access.space = Space::kShared;
    access.address -= window(Space::kShared, lane);
  } else if (access.address - address_of_first(local_) < local_.size()) {
    access.space = Space::kLocal;
    access.address -= window(Space::kLocal, lane);
  }
  return access;
}

std::byte* Warp::locate(int lane, Access given, bool* defined) {
  if (given.address % given.bytes != 0) {
    fail("address " + std::to_string(given.address) + " is not aligned", lane);
  }
  const Access access = in_its_space(lane, given);
  switch (access.space) {
    case Space::kShared: {
      const uint64_t offset = access.address - SharedMemory::kBase;
      const std::string error = block_->shared.access({.offset = offset,
                                                       .bytes = access.bytes,
                                                       .thread = thread(lane),
                                                       .clock = clock_,
                                                       .write = access.write,
                                                       .atomic = access.atomic,
                                                       .strict = block_->options.strict,
                                                       .value_defined = access.value_defined,
                                                       .value = access.value},
                                                      defined);
      if (!error.empty()) fail(error, lane);
      return block_->shared.data() + offset;
    }
    case Space::kLocal:
      return locate_local(lane, access, defined);
    case Space::kParam:
      return locate_param(lane, access);
    default:
      return locate_global(lane, access);
  }
}

std::byte* Warp::locate_local(int lane, const Access& access, bool* defined) {
  const auto size = static_cast<uint64_t>(block_->entry->local_bytes);
  if (access.address > size || access.bytes > size - access.address) {
    fail("outside the thread's local memory", lane);
  }
  const size_t first = static_cast<size_t>(lane) * size + access.address;
  for (size_t at = first; at < first + access.bytes; ++at) {
    if (access.write) {
      local_defined_[at] = access.value_defined;
    } else if (defined != nullptr && !local_defined_[at]) {
      *defined = false;
    }
  }
  return local_.data() + first;
}

std::byte* Warp::locate_param(int lane, const Access& access) const {
  const uint64_t offset = access.address - address_of_first(block_->params);
  const size_t size = block_->params.size();
  if (access.write || offset > size || access.bytes > size - offset) {
    fail("outside the parameters", lane);
  }
  return block_->params.data() + offset;
}

std::byte* Warp::locate_global(int lane, const Access& access) const {
  if (access.address < kNullPage) fail("null address", lane);
  if (access.address - address_of_first(block_->shared) < block_->shared.size()) {
    fail("a shared address used as global", lane);
  }
#if defined(__SANITIZE_ADDRESS__)
  if (__asan_region_is_poisoned(reinterpret_cast<void*>(access.address), access.bytes) != nullptr) {
    fail("outside every allocation", lane);
  }
#endif
  if (access.write && !access.value_defined) fail("stores an undefined value", lane);
  return reinterpret_cast<std::byte*>(access.address);
}

void Warp::copy_later(int lane, uint64_t to, const std::byte* from, unsigned bytes) {
  block_->shared.begin_copy(to, bytes);
  copies_[lane].copies.push_back({to, from, bytes});
  ++copies_[lane].open;
}

void Warp::commit_copies(int lane) {
  Copies& all = copies_[lane];
  all.groups.push_back(all.open);
  all.open = 0;
}

void Warp::finish_copies(int lane, size_t groups_left) {
  Copies& all = copies_[lane];
  while (all.groups.size() > groups_left) {
    const auto end = all.copies.begin() + static_cast<std::ptrdiff_t>(all.groups.front());
    for (auto copy = all.copies.begin(); copy != end; ++copy) {
      block_->shared.finish_copy(copy->to, copy->from, copy->bytes, thread(lane), clock_);
    }
    all.copies.erase(all.copies.begin(), end);
    all.groups.erase(all.groups.begin());
  }
}

}  // namespace fasa::ptx
