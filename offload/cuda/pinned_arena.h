// Host memory that a GPU reads and writes: mapped as in HostArena on the GPU's NUMA node, touched
// by several threads, then registered with the CUDA runtime in pieces.
//
// Small blocks share registered slabs: a registration takes longer than most copies, and two blocks
// in one page could not both be registered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "offload/cuda/cuda_calls.h"
#include "offload/host/host_arena.h"

namespace fasa {

// Thread-safe.
class PinnedArena {
 public:
  PinnedArena(CudaCalls& calls, const NumaPolicy& policy, int local_node, int threads);
  PinnedArena(const PinnedArena&) = delete;  // owns registrations
  PinnedArena& operator=(const PinnedArena&) = delete;
  ~PinnedArena();

  // Page-aligned, contents indeterminate. Throws BudgetError, with advice, if the system refuses
  // the memory or the pinning; then nothing changes.
  std::byte* allocate(size_t bytes, std::string_view purpose);
  void free(std::byte* data, size_t bytes) noexcept;

  // Length of the prefix of [data, data + bytes) that one copy may cover: the runtime refuses
  // copies across two registrations.
  size_t copyable(const void* data, size_t bytes) const;
  // Whether all of it is in one registration of this arena, as batched copies need.
  bool in_one_piece(const void* data, size_t bytes) const;

  // Registered bytes, slabs in full.
  uint64_t pinned_bytes() const;
  // See HostArena.
  std::string placement() const { return memory_.placement(); }

  static constexpr size_t kSlabBytes = size_t{4} << 20;
  static constexpr size_t kMaxInSlab = kSlabBytes / 4;  // larger blocks have their own mapping

 private:
  std::byte* pin(size_t bytes, size_t asked, std::string_view purpose);
  void unpin(std::byte* data, size_t bytes) noexcept;
  size_t left_in_piece(const std::byte* data) const;
  void touch(std::byte* data, size_t bytes) const;
  std::byte* take_run(size_t bytes);
  void give_run(std::byte* data, size_t bytes) noexcept;

  CudaCalls& calls_;
  const int threads_;
  HostArena memory_;
  mutable std::mutex mutex_;
  uint64_t pinned_ = 0;
  std::map<const std::byte*, size_t> mappings_;  // registered, by address
  std::atomic<bool> any_in_pieces_ = false;      // while false, single copies skip the lock
  std::vector<std::byte*> slabs_;
  std::map<std::byte*, size_t> runs_;  // free parts of slabs: start -> bytes
};

}  // namespace fasa
