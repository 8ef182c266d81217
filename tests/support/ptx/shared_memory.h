// A block's shared memory, with what is known about each byte: who wrote and read it last, and
// whether it is defined. A race is found although the bad order did not happen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fasa::ptx {

// Orders the accesses of a warp's lanes.
struct WarpClock {
  uint16_t syncs = 0;     // bar.warp.sync
  uint16_t meetings = 0;  // any collective: loads before it come before stores after it
};

class SharedMemory {
 public:
  static constexpr uint64_t kBase = 1024;  // offset of its first byte, so that null is no address

  // For the next block, of exactly this size and undefined.
  void clear(size_t bytes);
  void pass_barrier() { ++barriers_; }
  size_t size() const { return bytes_.size(); }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }

  struct Access {
    uint64_t offset;
    unsigned bytes;
    int thread;
    WarpClock clock;
    bool write = false;
    bool atomic = false;
    bool strict = false;  // collectives do not order loads before stores
    bool value_defined = true;
    const std::byte* value = nullptr;
  };
  // Checks and notes an access. Returns the error, "" if there is none. `defined`: cleared if it
  // reads an undefined byte.
  std::string access(const Access& access, bool* defined);
  // An asynchronous copy makes its bytes unusable until it is finished.
  void begin_copy(uint64_t offset, unsigned bytes);
  void finish_copy(uint64_t offset, const std::byte* from, unsigned bytes, int thread,
                   const WarpClock& clock);

 private:
  static constexpr int16_t kNone = -1;
  static constexpr int16_t kSeveralWarps = -2;

  struct Shadow {
    int16_t writer = kNone;  // threads
    int16_t reader = kNone;
    uint16_t write_clock = 0;
    uint16_t read_clock = 0;
    uint32_t written = 0;  // barriers until then
    uint32_t read = 0;
    uint32_t block = 0;  // to which all this belongs
    bool defined = false;
    bool pending = false;
    bool atomic = false;
  };
  bool ordered(const Access& access, int16_t other, uint32_t barriers, uint16_t then,
               uint16_t now) const;
  std::string note_write(const Access& access, uint64_t at, Shadow& shadow);
  void note_read(const Access& access, Shadow& shadow);

  std::vector<std::byte> bytes_;
  std::vector<Shadow> shadow_;
  uint32_t block_ = 0;
  uint32_t barriers_ = 0;
};

}  // namespace fasa::ptx
