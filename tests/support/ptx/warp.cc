#include "tests/support/ptx/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

namespace fasa::ptx {
namespace {

constexpr int kTurn = 20;  // instructions of a group in random order

}  // namespace

void Warp::fail(const std::string& what, int lane) const {
  const Block& b = *block_;
  std::string where =
      fmt::format("{}: block {},{},{}, ", b.entry->name, b.index[0], b.index[1], b.index[2]);
  where += lane < 0 ? fmt::format("warp {}", number_) : fmt::format("thread {}", thread(lane));
  if (now_ != nullptr) {
    const auto index = static_cast<size_t>(now_ - b.entry->code.data());
    where += fmt::format(", line {}: {}", now_->line, b.entry->text[index]);
  }
  throw Error(fmt::format("{}\n  {}", where, what));
}

// Groups at the same instruction become one.
void Warp::merge_groups() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (size_t k = groups_.size() - 1; k > i; --k) {
      if (groups_[k].pc != groups_[i].pc) continue;
      groups_[i].lanes |= groups_[k].lanes;
      groups_[i].waits = false;
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

// The one that is behind all others, or any.
int Warp::choose_group() {
  std::vector<int> ready;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!groups_[i].waits) ready.push_back(static_cast<int>(i));
  }
  if (ready.empty()) return -1;
  if (block_->options.seed != 0) return ready[block_->random() % ready.size()];
  return *std::ranges::min_element(ready, {},
                                   [&](int i) { return groups_[static_cast<size_t>(i)].pc; });
}

uint32_t Warp::guarded(const Instruction& in, uint32_t lanes) {
  if (in.guard == 0) return lanes;
  const uint32_t undefined = ~defined(in.guard) & lanes;
  if (undefined != 0) fail("depends on an undefined predicate", __builtin_ctz(undefined));
  const uint32_t value = predicate(in.guard);
  return lanes & (in.guard_negated ? ~value : value);
}

bool Warp::meet(const Instruction& in, uint32_t lanes) {
  const uint32_t* const masks = at<uint32_t>(in.slot[in.operands - 1]);
  bool complete = true;
  for_lanes(lanes, [&](int lane) {
    const uint32_t mask = masks[lane];
    if ((mask >> lane & 1) == 0) fail("the mask lacks the caller", lane);
    if ((mask & ~live_) != 0) fail("the mask has lanes that have ended", lane);
    complete = complete && (mask & ~lanes) == 0;
  });
  if (!complete) return false;
  for_lanes(lanes, [&](int lane) {
    for_lanes(masks[lane], [&](int other) {
      if (masks[other] != masks[lane]) fail("lanes with different masks", lane);
    });
  });
  in.run(*this, in, lanes);
  ++clock_.meetings;
  return true;
}

void Warp::define_parts(int slot, uint32_t lanes, std::span<const uint32_t> known) {
  uint32_t all = kAllLanes, any = 0;
  std::array<uint32_t, 4> parts{};
  for (size_t k = 0; k < known.size(); ++k) {
    all &= known[k];
    any |= known[k];
    parts[k] = (defined_part(slot, static_cast<int>(k)) & ~lanes) | (lanes & known[k]);
  }
  define(slot, lanes, all);
  if (all != any) parts_[slot] = parts;
}

// Some lanes of the group branch: they become a group of their own.
void Warp::branch(size_t group, const Instruction& in, uint32_t taken) {
  groups_[group].lanes &= ~taken;
  groups_.push_back({in.target, taken});
}

// Runs a group until it waits, ends, diverges or comes to where another one is.
void Warp::run_group(size_t index) {
  const std::vector<Instruction>& code = block_->entry->code;
  int pc = groups_[index].pc;
  int stop = INT_MAX;
  for (const Group& other : groups_) {
    if (other.pc > pc) stop = std::min(stop, other.pc);
  }
  const uint32_t lanes = groups_[index].lanes;
  int left = block_->options.seed != 0 && groups_.size() > 1 ? kTurn : INT_MAX;
  bool more = true;
  while (more && pc < stop && --left > 0) {
    const Instruction& in = code[static_cast<size_t>(pc)];
    now_ = &in;
    block_->entry->executed[static_cast<size_t>(pc)] = '1';
    const uint32_t active = guarded(in, lanes);
    if (in.kind == Kind::kPlain || (in.kind == Kind::kCollective && active == 0)) {
      if (active != 0) in.run(*this, in, active);
      ++pc;
    } else if (in.kind == Kind::kBranch) {
      if (active != 0 && active != lanes) branch(index, in, active);
      more = active == 0 || (active == lanes && groups_.size() == 1);  // else others may be passed
      pc = active == lanes ? in.target : pc + 1;
    } else if (in.kind == Kind::kExit) {
      for_lanes(active, [&](int lane) { finish_copies(lane, 0); });
      live_ &= ~active;
      groups_[index].lanes &= ~active;
      more = false;
      ++pc;
    } else if (in.kind == Kind::kBarrier) {
      if (active != lanes) fail("a barrier under a divergent predicate");
      groups_[index].waits = true;
      more = false;
    } else if (meet(in, active)) {
      ++pc;
    } else {
      groups_[index].waits = true;
      more = false;
    }
  }
  groups_[index].pc = pc;
  if (groups_[index].lanes == 0) {
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(index));
  }
}

void Warp::run() {
  for (merge_groups(); !groups_.empty(); merge_groups()) {
    const int chosen = choose_group();
    if (chosen < 0) break;
    run_group(static_cast<size_t>(chosen));
  }
}

void Warp::check_at_barrier() {
  for (const Group& group : groups_) {
    const Instruction& in = block_->entry->code[static_cast<size_t>(group.pc)];
    if (groups_.size() == 1 && in.kind == Kind::kBarrier) continue;
    now_ = &in;
    std::string waiting;
    for (const Group& other : groups_) {
      waiting += fmt::format(" {:08x} at line {};", other.lanes,
                             block_->entry->code[static_cast<size_t>(other.pc)].line);
    }
    fail("lanes of a warp wait for each other forever:" + waiting);
  }
}

void Warp::pass_barrier() {
  for (Group& group : groups_) {
    ++group.pc;
    group.waits = false;
  }
  ++clock_.syncs;
  ++clock_.meetings;
}

void Warp::begin(Block& block, int number, int lanes) {
  block_ = &block;
  number_ = number;
  clock_ = {};
  now_ = nullptr;
  live_ = lanes == kLanes ? kAllLanes : (uint32_t{1} << lanes) - 1;
  groups_ = {{0, live_}};
  const Entry& entry = *block.entry;
  file_.resize(static_cast<size_t>(entry.file_words));
  known_.assign(file_.size() / 8 + 1, 0);  // nothing is defined
  local_.assign(static_cast<size_t>(entry.local_bytes) * kLanes, std::byte{0xcd});
  local_defined_.assign(local_.size(), false);
  for (Copies& copies : copies_) copies = {};
  fill_constants();
  fill_specials();
}

void Warp::fill_constants() {
  const Entry& entry = *block_->entry;
  for (const Entry::Constant& constant : entry.constants) {
    defined(constant.slot) = kAllLanes;
    if (constant.width == 0) predicate(constant.slot) = constant.value != 0 ? kAllLanes : 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      std::memcpy(reinterpret_cast<uint8_t*>(file_.data() + constant.slot) + lane * constant.width,
                  &constant.value, static_cast<size_t>(constant.width));
    }
  }
  for (const int slot : entry.param_addresses) {
    for (int lane = 0; lane < kLanes; ++lane) {
      at<uint64_t>(slot)[lane] += reinterpret_cast<uint64_t>(block_->params.data());
    }
  }
}

void Warp::fill_specials() {
  for (const Entry::Special& special : block_->entry->specials) {
    defined(special.slot) = kAllLanes;
    const size_t dot = special.name.find('.');
    const std::string name = special.name.substr(0, dot);
    const int axis = dot == std::string::npos ? 0 : special.name.back() - 'x';
    for (int lane = 0; lane < kLanes; ++lane) {
      at<int>(special.slot)[lane] = name == "%tid"      ? (axis == 0 ? thread(lane) : 0)
                                    : name == "%ntid"   ? (axis == 0 ? block_->threads : 1)
                                    : name == "%ctaid"  ? block_->index[axis]
                                    : name == "%nctaid" ? block_->grid[axis]
                                                        : lane;  // %laneid
    }
  }
}

}  // namespace fasa::ptx
