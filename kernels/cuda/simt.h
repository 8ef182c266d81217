// The machine interface of the CUDA kernels' bodies: thread indices, barriers, ballots, shuffles,
// atomics, shared memory. Under nvcc these are the hardware's, at no cost; elsewhere an interpreter
// implements them (simt_machine.h, tests/support/simt_interpreter.h), so that the same bodies run
// on a host, under its sanitizers.
//
// A kernel is a plain struct of its parameters with `void operator()() const` (the body of one
// thread), `kName`, and `kThreads` (threads per block, a multiple of 32). A call's `start` is a
// template over the launcher (cuda_launcher.cuh, SimtLauncher), in the same *_inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define FASA_DEVICE __device__ __forceinline__
#define FASA_UNROLL _Pragma("unroll")
#define FASA_UNROLL_4 _Pragma("unroll 4")
#define FASA_UNROLL_8 _Pragma("unroll 8")
#define FASA_NO_UNROLL _Pragma("unroll 1")
#else
#define FASA_DEVICE inline
#define FASA_UNROLL
#define FASA_UNROLL_4
#define FASA_UNROLL_8
#define FASA_NO_UNROLL
#include "kernels/cuda/simt_machine.h"
#endif

namespace fasa::simt {

inline constexpr int kWarpThreads = 32;
inline constexpr uint32_t kFullWarp = 0xffffffffu;

// The unit in which a thread moves data.
struct alignas(16) Word16 {
  uint32_t words[4];
};
struct alignas(8) Word8 {
  uint32_t words[2];
};

// Blocks of a launch, and each block's shared memory.
struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
  int64_t shared_bytes = 0;
};

#if defined(__CUDACC__)

FASA_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
FASA_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
FASA_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
FASA_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
FASA_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
FASA_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
FASA_DEVICE int grid_y() { return static_cast<int>(gridDim.y); }

// The block's shared memory, Grid::shared_bytes of it, 128-byte aligned. Its contents are
// indeterminate.
FASA_DEVICE std::byte* shared_memory() {
  extern __shared__ __align__(128) unsigned char fasa_shared_memory[];
  return reinterpret_cast<std::byte*>(fasa_shared_memory);
}

// All threads of the block that have not ended must call it.
FASA_DEVICE void sync_block() { __syncthreads(); }
FASA_DEVICE void sync_warp(uint32_t mask = kFullWarp) { __syncwarp(mask); }

// All threads of `mask` call it, with the same mask.
FASA_DEVICE uint32_t ballot(bool predicate, uint32_t mask = kFullWarp) {
  return __ballot_sync(mask, predicate);
}
template <typename T>
FASA_DEVICE T shuffle(T value, int source, uint32_t mask = kFullWarp) {
  return __shfl_sync(mask, value, source);
}

// Returns the old value.
template <typename T>
FASA_DEVICE T atomic_add(T* address, T value) {
  return atomicAdd(address, value);
}
FASA_DEVICE uint64_t atomic_add(uint64_t* address, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(address), value);
}
FASA_DEVICE uint32_t atomic_max(uint32_t* address, uint32_t value) {
  return atomicMax(address, value);
}
FASA_DEVICE uint32_t atomic_or(uint32_t* address, uint32_t value) {
  return atomicOr(address, value);
}

// Reads data that other blocks of this launch have written, past the L1 cache.
template <typename T>
FASA_DEVICE T load_fresh(const T* address) {
  return __ldcg(address);
}
FASA_DEVICE Word16 load_fresh(const Word16* address) {
  const uint4 words = __ldcg(reinterpret_cast<const uint4*>(address));
  return {{words.x, words.y, words.z, words.w}};
}

// Reads data that is not read again, without displacing other data from the cache.
FASA_DEVICE Word16 load_once(const Word16* address) {
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(address));
  return {{words.x, words.y, words.z, words.w}};
}
FASA_DEVICE Word8 load_once(const Word8* address) {
  const uint2 words = __ldcs(reinterpret_cast<const uint2*>(address));
  return {{words.x, words.y}};
}
FASA_DEVICE uint32_t load_once(const uint32_t* address) { return __ldcs(address); }

// Begins to bring the line of 128 bytes at an address into the L2 cache.
FASA_DEVICE void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

// Copies from global to shared memory; the thread goes on until it waits. Synchronous before sm_80.
template <typename Word>
FASA_DEVICE void copy_async(Word* to, const Word* from) {
#if __CUDA_ARCH__ >= 800
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (sizeof(Word) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else {
    static_assert(sizeof(Word) == 8 || sizeof(Word) == 4);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(sizeof(Word))
                 : "memory");
  }
#else
  *to = *from;
#endif
}
// Ends a group of this thread's copies.
FASA_DEVICE void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all but the newest kLeft groups of this thread's copies are done. Other threads see
// the data after a barrier.
template <int kLeft>
FASA_DEVICE void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory, by all lanes of a warp. Lane l
// gives the address of row l % 8 of matrix l / 8. Of each matrix it gets elements c and c + 1 of
// row l / 4, with c = 2 (l % 4); kTransposed: elements l / 4 of rows c and c + 1.
template <bool kTransposed>
FASA_DEVICE Word16 load_matrices(const Word16* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  Word16 all;
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(all.words[0]), "=r"(all.words[1]), "=r"(all.words[2]), "=r"(all.words[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(all.words[0]), "=r"(all.words[1]), "=r"(all.words[2]), "=r"(all.words[3])
                 : "r"(at)
                 : "memory");
  }
  return all;
}

FASA_DEVICE int count_bits(uint32_t word) { return __popc(word); }
FASA_DEVICE int lowest_bit(uint32_t word) { return __ffs(static_cast<int>(word)) - 1; }

// A float from its bits.
FASA_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }
FASA_DEVICE uint32_t bits_of(float value) { return __float_as_uint(value); }
// 2^23 plus a byte of a word, exact in f32: a conversion in one instruction.
FASA_DEVICE float byte_above_2_23(uint32_t word, int byte) {
  return float_of(__byte_perm(word, 0x4b000000u, 0x7440u + static_cast<uint32_t>(byte)));
}
// A byte of two words, in bits 0-7 and 16-23; the other bits are indeterminate.
FASA_DEVICE uint32_t pair_bytes(uint32_t first, uint32_t second, int byte) {
  return __byte_perm(first, second, 0x4400u + 0x1111u * static_cast<uint32_t>(byte));
}
FASA_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FASA_DEVICE float square_root(float value) { return __fsqrt_rn(value); }

#else

FASA_DEVICE int thread_index() { return machine().place().thread; }
FASA_DEVICE int block_threads() { return machine().place().threads; }
FASA_DEVICE int block_x() { return machine().place().block[0]; }
FASA_DEVICE int block_y() { return machine().place().block[1]; }
FASA_DEVICE int block_z() { return machine().place().block[2]; }
FASA_DEVICE int grid_x() { return machine().place().grid[0]; }
FASA_DEVICE int grid_y() { return machine().place().grid[1]; }
FASA_DEVICE std::byte* shared_memory() { return machine().shared_memory(); }
FASA_DEVICE void sync_block() { machine().sync_block(); }

FASA_DEVICE void sync_warp(uint32_t mask = kFullWarp) {
  machine().collective(mask, nullptr, [](void* const*, uint32_t) {});
}
FASA_DEVICE uint32_t ballot(bool predicate, uint32_t mask = kFullWarp) {
  struct Vote {
    bool predicate;
    uint32_t result;
  } vote = {predicate, 0};
  machine().collective(mask, &vote, [](void* const* lanes, uint32_t members) {
    uint32_t votes = 0;
    for_each_lane<Vote>(lanes, members, [&](int lane, Vote& of) {
      if (of.predicate) votes |= 1u << lane;
    });
    for_each_lane<Vote>(lanes, members, [&](int, Vote& of) { of.result = votes; });
  });
  return vote.result;
}
template <typename T>
FASA_DEVICE T shuffle(T value, int source, uint32_t mask = kFullWarp) {
  struct Word {
    T value;
    int source;
    T result;
  } word = {value, source % kWarpThreads, value};
  machine().collective(mask, &word, [](void* const* lanes, uint32_t members) {
    for_each_lane<Word>(lanes, members, [&](int lane, Word& of) {
      if ((members >> of.source & 1) == 0) return bad_shuffle(lane, of.source);
      of.result = static_cast<const Word*>(lanes[of.source])->value;
    });
  });
  return word.result;
}

// Yields, so that the interpreter may run another thread first.
template <typename T>
FASA_DEVICE T atomic_add(T* address, T value) {
  machine().yield();
  const T old = *address;
  *address = old + value;
  return old;
}
FASA_DEVICE uint32_t atomic_max(uint32_t* address, uint32_t value) {
  machine().yield();
  const uint32_t old = *address;
  *address = old < value ? value : old;
  return old;
}
FASA_DEVICE uint32_t atomic_or(uint32_t* address, uint32_t value) {
  machine().yield();
  const uint32_t old = *address;
  *address = old | value;
  return old;
}

template <typename T>
FASA_DEVICE T load_fresh(const T* address) {
  return *address;
}

template <typename Word>
FASA_DEVICE Word load_once(const Word* address) {
  return *address;
}
FASA_DEVICE void prefetch(const void*) {}

// The interpreter copies at once or at the wait, depending on the order in which threads run.
template <typename Word>
FASA_DEVICE void copy_async(Word* to, const Word* from) {
  machine().copy_later(to, from, sizeof(Word));
}
FASA_DEVICE void commit_copies() { machine().commit_copies(); }
template <int kLeft>
FASA_DEVICE void wait_copies() {
  machine().finish_copies(kLeft);
}

template <bool kTransposed>
FASA_DEVICE Word16 load_matrices(const Word16* words) {
  struct Load {
    const Word16* words;
    Word16 result;
  } load = {words, {}};
  machine().collective(kFullWarp, &load, [](void* const* lanes, uint32_t mask) {
    const auto element = [&](int matrix, int row, int column) {
      const Word16& at = *static_cast<const Load*>(lanes[matrix * 8 + row])->words;
      return at.words[column / 2] >> column % 2 * 16 & 0xffffu;
    };
    for_each_lane<Load>(lanes, mask, [&](int lane, Load& of) {
      const int row = lane / 4;
      const int c = lane % 4 * 2;
      for (int matrix = 0; matrix < 4; ++matrix) {
        const uint32_t low = kTransposed ? element(matrix, c, row) : element(matrix, row, c);
        const uint32_t high =
            kTransposed ? element(matrix, c + 1, row) : element(matrix, row, c + 1);
        of.result.words[matrix] = low | high << 16;
      }
    });
  });
  return load.result;
}

FASA_DEVICE int count_bits(uint32_t word) { return __builtin_popcount(word); }
FASA_DEVICE int lowest_bit(uint32_t word) { return word == 0 ? -1 : __builtin_ctz(word); }
FASA_DEVICE float float_of(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
FASA_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}
FASA_DEVICE float byte_above_2_23(uint32_t word, int byte) {
  return float_of(0x4b000000u | (word >> 8 * byte & 0xffu));
}
FASA_DEVICE uint32_t pair_bytes(uint32_t first, uint32_t second, int byte) {
  return (first >> 8 * byte & 0xffu) | (second >> 8 * byte & 0xffu) << 16;
}
FASA_DEVICE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FASA_DEVICE float square_root(float value) { return __builtin_sqrtf(value); }

#endif

FASA_DEVICE int lane() { return thread_index() % kWarpThreads; }
FASA_DEVICE int warp() { return thread_index() / kWarpThreads; }
FASA_DEVICE int block_warps() { return block_threads() / kWarpThreads; }
// Bits of the lanes before this one.
FASA_DEVICE uint32_t lower_lanes() { return (1u << lane()) - 1; }

template <typename T>
FASA_DEVICE T& shared() {
  return *reinterpret_cast<T*>(shared_memory());
}

template <typename T>
FASA_DEVICE T shuffle_xor(T value, int lanes, uint32_t mask = kFullWarp) {
  return shuffle(value, lane() ^ lanes, mask);
}

// Over the whole warp, with the same result in every lane; sums of floats in a fixed order.
template <typename T>
FASA_DEVICE T warp_sum(T value) {
  for (int lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}
template <typename T>
FASA_DEVICE T warp_max(T value) {
  for (int lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) {
    const T other = shuffle_xor(value, lanes);
    value = value < other ? other : value;
  }
  return value;
}
template <typename T>
FASA_DEVICE T warp_min(T value) {
  for (int lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) {
    const T other = shuffle_xor(value, lanes);
    value = other < value ? other : value;
  }
  return value;
}
// Sum of the values of this lane and those before it.
template <typename T>
FASA_DEVICE T warp_prefix_sum(T value) {
  for (int lanes = 1; lanes < kWarpThreads; lanes *= 2) {
    const T other = shuffle(value, lane() < lanes ? lane() : lane() - lanes);
    if (lane() >= lanes) value += other;
  }
  return value;
}

}  // namespace fasa::simt
