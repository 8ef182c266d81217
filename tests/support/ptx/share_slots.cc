// Registers that live within one basic block share slots: a kernel of tens of thousands of virtual
// registers then needs kilobytes a warp instead of megabytes.
#include <map>
#include <vector>

#include "tests/support/ptx/entry.h"
#include "tests/support/ptx/warp.h"

namespace fasa::ptx {
namespace {

// Where the value of a slot is used. Local: within one block, which writes it first in all lanes.
struct Life {
  int block = -1;
  size_t last = 0;
  bool local = true;
};

std::vector<int> blocks_of(const std::vector<Instruction>& code) {
  std::vector<bool> begins(code.size() + 1, false);
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].target >= 0) begins[static_cast<size_t>(code[i].target)] = true;
    if (code[i].kind == Kind::kBranch || code[i].kind == Kind::kExit) begins[i + 1] = true;
  }
  std::vector<int> blocks(code.size());
  int block = 0;
  for (size_t i = 0; i < code.size(); ++i) blocks[i] = block += begins[i];
  return blocks;
}

class SlotSharing {
 public:
  explicit SlotSharing(Entry& entry)
      : entry_(entry), lives_(static_cast<size_t>(entry.file_words) / kUnit + 1) {}

  void run() {
    find_lives();
    for (size_t i = 0; i < entry_.code.size(); ++i) replace(i);
    std::erase_if(entry_.constants, [&](auto& constant) { return !rename(constant.slot); });
    std::erase_if(entry_.specials, [&](auto& special) { return !rename(special.slot); });
    std::erase_if(entry_.param_addresses, [&](int& slot) { return !rename(slot); });
    entry_.file_words = words_;
  }

 private:
  static constexpr int kUnit = 8;  // words of the smallest slot

  Life& life(int slot) { return lives_[static_cast<size_t>(slot / kUnit)]; }

  void note(int slot, int block, size_t at, bool written) {
    if (slot == 0) return;
    Life& known = life(slot);
    if (known.block < 0) {
      known.block = block;
      known.local = written;
    }
    known.local = known.local && known.block == block;
    known.last = at;
  }
  void find_lives() {
    const std::vector<int> blocks = blocks_of(entry_.code);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Instruction& in = entry_.code[i];
      note(in.guard, blocks[i], i, false);
      for (int k = in.results; k < in.operands; ++k) note(in.slot[k], blocks[i], i, false);
      for (int k = 0; k < in.results && k < in.operands; ++k) {
        note(in.slot[k], blocks[i], i, in.guard == 0);
      }
    }
  }

  // The shared slot of one that was declared.
  int shared(int slot, int width) {
    if (slot == 0) return 0;
    const auto [found, added] = slots_.try_emplace(slot, 0);
    if (!added) return found->second;
    const int words = words_of(width);
    std::vector<int>& free = free_[words];
    if (life(slot).local && !free.empty()) {
      found->second = free.back();
      free.pop_back();
    } else {
      found->second = words_;
      words_ += words;
    }
    return found->second;
  }
  // Slots of operands become free behind the instruction, whose result is never one of them.
  void replace(size_t i) {
    Instruction& in = entry_.code[i];
    const Instruction before = in;
    in.guard = shared(in.guard, 0);
    for (int k = 0; k < in.operands; ++k) in.slot[k] = shared(in.slot[k], in.width[k]);
    for (int k = 0; k < in.operands; ++k) release(before.slot[k], in.slot[k], in.width[k], i);
    release(before.guard, in.guard, 0, i);
  }
  void release(int slot, int shared, int width, size_t at) {
    if (slot == 0 || !life(slot).local || life(slot).last != at) return;
    life(slot).last = entry_.code.size();  // once, also as several operands
    free_[words_of(width)].push_back(shared);
  }
  // False: nothing uses it.
  bool rename(int& slot) const {
    const auto found = slots_.find(slot);
    if (found != slots_.end()) slot = found->second;
    return found != slots_.end();
  }

  Entry& entry_;
  std::vector<Life> lives_;  // by declared slot
  std::map<int, int> slots_;
  std::map<int, std::vector<int>> free_;  // by words
  int words_ = kUnit;
};

}  // namespace

void share_slots(Entry& entry) { SlotSharing(entry).run(); }

}  // namespace fasa::ptx
