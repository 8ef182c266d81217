#include "offload/cuda/pinned_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "offload/cuda/cuda_error.h"
#include "offload/host/pinning.h"
#include "offload/host/topology.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr size_t to_pages(size_t bytes) {
  return (bytes + HostArena::kPageBytes - 1) / HostArena::kPageBytes * HostArena::kPageBytes;
}

// Up to this size one thread touches all pages: starting others takes longer.
constexpr size_t kTouchedByOne = size_t{64} << 20;

void touch_pages(std::byte* begin, const std::byte* end) {
  for (volatile std::byte* at = begin; at < end; at = at + HostArena::kPageBytes) {
    *at = std::byte{0};
  }
}

}  // namespace

PinnedArena::PinnedArena(CudaCalls& calls, const NumaPolicy& policy, int local_node, int threads)
    : calls_(calls), threads_(std::max(1, threads)), memory_(policy, local_node, std::nullopt) {}

PinnedArena::~PinnedArena() {
  for (std::byte* slab : slabs_) unpin(slab, kSlabBytes);
}

std::byte* PinnedArena::allocate(size_t bytes, std::string_view purpose) {
  const std::lock_guard lock(mutex_);
  const size_t length = to_pages(std::max<size_t>(bytes, 1));
  if (length > kMaxInSlab) return pin(length, bytes, purpose);
  std::byte* data = take_run(length);
  if (data == nullptr) {
    slabs_.reserve(slabs_.size() + 1);  // steps that can fail come first or are undone
    std::byte* slab = pin(kSlabBytes, bytes, purpose);
    try {
      runs_.emplace(slab, kSlabBytes);
    } catch (...) {
      unpin(slab, kSlabBytes);
      throw;
    }
    slabs_.push_back(slab);
    data = take_run(length);
  }
  return data;
}

void PinnedArena::free(std::byte* data, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const size_t length = to_pages(std::max<size_t>(bytes, 1));
  if (length > kMaxInSlab) {
    unpin(data, length);
  } else {
    give_run(data, length);
  }
}

size_t PinnedArena::copyable(const void* data, size_t bytes) const {
  if (!any_in_pieces_.load(std::memory_order_relaxed)) [[likely]]
    return bytes;
  const std::lock_guard lock(mutex_);
  const size_t left = left_in_piece(static_cast<const std::byte*>(data));
  return left == 0 ? bytes : std::min(bytes, left);
}

bool PinnedArena::in_one_piece(const void* data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return bytes <= left_in_piece(static_cast<const std::byte*>(data));
}

// Registered bytes from `data` to the end of its piece; 0 outside of the arena.
size_t PinnedArena::left_in_piece(const std::byte* data) const {
  auto mapping = mappings_.upper_bound(data);
  if (mapping == mappings_.begin()) return 0;
  --mapping;
  const auto offset = static_cast<size_t>(data - mapping->first);
  if (offset >= mapping->second) return 0;
  return std::min(mapping->second - offset, kPinnedPieceBytes - offset % kPinnedPieceBytes);
}

uint64_t PinnedArena::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return pinned_;
}

// Touches pages from several threads: the kernel clears a page at the first touch, which one thread
// does at a fraction of the memory's bandwidth. The mapping's policy decides their NUMA node.
void PinnedArena::touch(std::byte* data, size_t bytes) const {
  const size_t workers =
      std::clamp<size_t>(bytes / kTouchedByOne, 1, static_cast<size_t>(threads_));
  const size_t part = to_pages((bytes + workers - 1) / workers);
  std::vector<std::jthread> helpers;  // joined at the end
  for (size_t at = part; at < bytes; at += part) {
    helpers.emplace_back(touch_pages, data + at, data + std::min(at + part, bytes));
  }
  touch_pages(data, data + std::min(part, bytes));
}

std::byte* PinnedArena::pin(size_t bytes, size_t asked, std::string_view purpose) {
  std::byte* data = memory_.allocate(bytes, HostArena::kPageBytes);
  if (data == nullptr) {
    throw BudgetError("host_memory", asked, pinned_, Topology::machine().memory_bytes(),
                      std::string(purpose));
  }
  touch(data, bytes);
  const std::vector<PinnedPiece> pieces = pinned_pieces(bytes);
  mappings_.emplace(data, bytes);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const CudaStatus status = calls_.register_host(data + pieces[i].offset, pieces[i].bytes);
    if (status == cuda_status::kSuccess) continue;
    calls_.take_last_error();
    const CudaCall call{"cudaHostRegister", pieces[i].bytes};
    while (i-- > 0) calls_.unregister_host(data + pieces[i].offset);
    mappings_.erase(data);
    memory_.free(data);
    if (loses_context(status)) throw DeviceError(cuda_failure(calls_, status, call));
    throw BudgetError("pinned_memory", asked, pinned_, pinned_,
                      fmt::format("{} ({}; {})", purpose, cuda_failure(calls_, status, call),
                                  pinning_advice(pinning_limits(), pinned_, bytes)));
  }
  pinned_ += bytes;
  if (pieces.size() > 1) any_in_pieces_ = true;
  return data;
}

void PinnedArena::unpin(std::byte* data, size_t bytes) noexcept {
  for (const PinnedPiece& piece : pinned_pieces(bytes)) calls_.unregister_host(data + piece.offset);
  memory_.free(data);
  pinned_ -= bytes;
  mappings_.erase(data);
}

std::byte* PinnedArena::take_run(size_t bytes) {
  const auto found = std::find_if(runs_.begin(), runs_.end(),
                                  [&](const auto& run) { return run.second >= bytes; });
  if (found == runs_.end()) return nullptr;
  const auto [data, length] = *found;
  runs_.erase(found);
  if (length > bytes) runs_.emplace(data + bytes, length - bytes);
  return data;
}

// Merges adjacent free runs of one slab; slabs are never freed.
void PinnedArena::give_run(std::byte* data, size_t bytes) noexcept {
  const auto starts_slab = [&](const std::byte* at) {
    return std::find(slabs_.begin(), slabs_.end(), at) != slabs_.end();
  };
  auto next = runs_.lower_bound(data);
  if (next != runs_.end() && data + bytes == next->first && !starts_slab(next->first)) {
    bytes += next->second;
    next = runs_.erase(next);
  }
  if (next != runs_.begin() && !starts_slab(data)) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == data) {
      previous->second += bytes;
      return;
    }
  }
  runs_.emplace_hint(next, data, bytes);
}

}  // namespace fasa
