// A kernel of nvcc's PTX, decoded for execution by warps. Written from the PTX ISA; shares no code
// with the kernels or their interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace fasa::ptx {

// PTX that the executor does not know, or an error of the kernel that it executes.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Warp;
struct Instruction;
// Executes an instruction in these lanes of a warp.
using Run = void (*)(Warp& warp, const Instruction& instruction, uint32_t lanes);

enum class Kind : uint8_t { kPlain, kBranch, kExit, kBarrier, kCollective };
enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam };
enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp };

struct Instruction {
  static constexpr int kMaxOperands = 16;

  Run run = nullptr;
  Kind kind = Kind::kPlain;
  Space space = Space::kGeneric;
  Rounding rounding = Rounding::kNearest;
  bool guard_negated = false;
  bool negated = false;  // the operand of a vote
  bool saturates = false;
  bool flushes = false;              // subnormal numbers to zero
  uint8_t mode = 0;                  // of a shuffle; 1: packs, or converts to another space
  uint8_t count = 1;                 // elements of a vector
  uint8_t bytes = 0;                 // of one element
  uint8_t operands = 0;              // used of the two below
  uint8_t results = 1;               // the first operands, which are written
  uint8_t width[kMaxOperands] = {};  // bytes of a lane; 0: a predicate
  int32_t slot[kMaxOperands] = {};
  int32_t guard = 0;      // slot of a predicate; 0: none
  int32_t target = -1;    // of a branch
  int32_t line = 0;       // in the file
  int64_t immediate = 0;  // offset of an address, number of copy groups
};

// A slot holds the values of 32 lanes, from a word of the warp's register file on; a predicate is a
// word of bits. Constants, special registers and addresses of parameters are slots, too.
struct Entry {
  struct Constant {
    int slot;
    int width;
    uint64_t value;
  };
  struct Special {
    int slot;
    std::string name;
  };

  std::string name;
  int64_t param_bytes = 0;
  int64_t local_bytes = 0;  // of a thread
  int max_threads = 0;      // 0: not declared
  int file_words = 8;       // slot 0 is no register
  std::vector<Instruction> code;
  std::vector<std::string> text;  // of each instruction
  mutable std::string executed;   // '1' for each instruction that ran, else '0'
  std::vector<Constant> constants;
  std::vector<Special> specials;
  std::vector<int> param_addresses;  // slots that hold an offset into the parameters
};

// Gives registers that live within one basic block slots in common.
void share_slots(Entry& entry);

struct Options {
  bool strict = false;   // a load and another lane's later store need bar.warp.sync between them
  bool falling = false;  // order of warps and blocks
  unsigned seed = 0;     // not 0: warps, and groups of a diverged warp, in random order
};

// Executes all blocks. Throws Error for what the hardware leaves undefined: misaligned addresses,
// addresses outside a block's memory, races in shared memory, undefined values in addresses,
// guards and stores, collectives and barriers that not all lanes reach.
void launch(const Entry& entry, const void* params, size_t param_bytes, const int (&grid)[3],
            int threads, int64_t shared_bytes, const Options& options);

}  // namespace fasa::ptx
