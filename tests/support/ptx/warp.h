// State of a block that runs: its warps, registers and shared memory.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/support/ptx/entry.h"
#include "tests/support/ptx/shared_memory.h"

namespace fasa::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = ~0u;

// Words of a slot of values of so many bytes; 0: a predicate.
constexpr int words_of(int width) { return width == 0 ? 8 : width * kLanes / 4; }

template <typename T>
T load_bits(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename F>
void for_lanes(uint32_t lanes, const F& f) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) f(__builtin_ctz(lanes));
  }
}

struct Block {
  const Entry* entry = nullptr;
  Options options;
  std::vector<std::byte> params;
  SharedMemory shared;
  int index[3] = {};
  int grid[3] = {};
  int threads = 0;
  std::vector<std::unique_ptr<Warp>> warps;
  std::mt19937 random;
};

class Warp {
 public:
  // Lanes at the same instruction.
  struct Group {
    int pc;
    uint32_t lanes;
    bool waits = false;
  };

  // Prepares the first `lanes` lanes for the entry's beginning.
  void begin(Block& block, int number, int lanes);
  // Runs until all groups wait or have ended.
  void run();
  bool ended() const { return groups_.empty(); }
  void check_at_barrier();  // throws Error unless all lanes are there
  void pass_barrier();

  int thread(int lane) const { return number_ * kLanes + lane; }
  WarpClock& clock() { return clock_; }

  template <typename T>
  T* at(int slot) {
    return reinterpret_cast<T*>(file_.data() + slot);
  }
  uint32_t& predicate(int slot) { return file_[static_cast<size_t>(slot)]; }
  // Lanes whose value is defined.
  uint32_t& defined(int slot) { return known_[static_cast<size_t>(slot) / 8]; }
  void define(int slot, uint32_t lanes, uint32_t known) {
    uint32_t& all = defined(slot);
    all = (all & ~lanes) | (lanes & known);
    if (!parts_.empty()) parts_.erase(slot);
  }
  // A value packed from up to four parts, some of which may be undefined: nvcc packs a register
  // that nothing wrote with one that it unpacks again.
  void define_parts(int slot, uint32_t lanes, std::span<const uint32_t> known);
  uint32_t defined_part(int slot, int part) {
    const auto found = parts_.find(slot);
    return found == parts_.end() ? defined(slot) : found->second[static_cast<size_t>(part)];
  }
  // An operand of any width, its low bytes; results extend the sign of signed types.
  template <typename T>
  T get(const Instruction& in, int operand, int lane) {
    return load_bits<T>(bytes_of(in, operand, lane));
  }
  template <typename T>
  void put(const Instruction& in, int operand, int lane, T value) {
    if constexpr (std::is_integral_v<T>) {
      const auto wide = static_cast<int64_t>(value);
      std::memcpy(bytes_of(in, operand, lane), &wide, in.width[operand]);
    } else {
      std::memcpy(bytes_of(in, operand, lane), &value, sizeof(T));
    }
  }

  struct Access {
    Space space;
    uint64_t address;
    unsigned bytes;
    bool write = false;
    bool atomic = false;
    bool value_defined = true;         // of a store
    const std::byte* value = nullptr;  // of a store: the same value again is no race
  };
  // The bytes at an address, after all checks. `defined`: cleared if a byte read is undefined.
  std::byte* locate(int lane, Access access, bool* defined = nullptr);
  // The address that an operand holds, with an offset.
  uint64_t address_of(const Instruction& in, int operand, int lane, int64_t offset);
  // Begin of the generic addresses of a lane's own local memory, or of shared memory.
  uint64_t window(Space space, int lane) const;

  void copy_later(int lane, uint64_t to, const std::byte* from, unsigned bytes);
  void commit_copies(int lane);
  void finish_copies(int lane, size_t groups_left);

  [[noreturn]] void fail(const std::string& what, int lane = -1) const;

 private:
  struct Copy {
    uint64_t to;  // offset of shared memory
    const std::byte* from;
    unsigned bytes;
  };
  struct Copies {  // of a lane, oldest first
    std::vector<Copy> copies;
    std::vector<size_t> groups;  // sizes
    size_t open = 0;             // copies after the last group
  };

  uint8_t* bytes_of(const Instruction& in, int operand, int lane) {
    return reinterpret_cast<uint8_t*>(file_.data() + in.slot[operand]) + lane * in.width[operand];
  }
  void fill_constants();
  void fill_specials();
  Access in_its_space(int lane, Access access) const;
  std::byte* locate_local(int lane, const Access& access, bool* defined);
  std::byte* locate_param(int lane, const Access& access) const;
  std::byte* locate_global(int lane, const Access& access) const;

  void merge_groups();
  int choose_group();  // -1: all wait
  void run_group(size_t index);
  uint32_t guarded(const Instruction& in, uint32_t lanes);
  void branch(size_t group, const Instruction& in, uint32_t taken);
  // Runs a collective if all lanes of its masks are there.
  bool meet(const Instruction& in, uint32_t lanes);

  Block* block_ = nullptr;
  int number_ = 0;
  uint32_t live_ = 0;
  WarpClock clock_;
  std::vector<Group> groups_;
  std::vector<uint32_t> file_;
  std::vector<uint32_t> known_;  // for every eighth word of the file, the lanes that are defined
  std::map<int, std::array<uint32_t, 4>> parts_;  // by slot, where parts differ
  std::vector<std::byte> local_;
  std::vector<bool> local_defined_;
  Copies copies_[kLanes];
  const Instruction* now_ = nullptr;
};

}  // namespace fasa::ptx
