// One sequence's state of the layers with linear attention: in device memory as of its last token,
// and in host memory as of some earlier ones (snapshots), because a state cannot go back.
//
// Prefilled tokens advance it in blocks that end at multiples of kLinearBlock, counted from where
// the prefilled tokens begin; decoded tokens one by one. So its bits depend on which tokens were
// prefilled and which decoded, and not on the steps they came in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/linear_params.h"
#include "offload/device.h"

namespace fasa {

class LinearState {
 public:
  // All must outlive it. An empty sequence, without memory.
  LinearState(Device& device, const LinearLayout& layout, const SnapshotRule& rule)
      : device_(&device), layout_(&layout), rule_(&rule) {}

  int64_t tokens() const { return tokens_; }
  // The most tokens, at most `tokens`, whose state is known: all, those of a snapshot, or 0.
  int64_t resume_point(int64_t tokens) const;
  void truncate(int64_t tokens);  // to a resume point
  // The next step takes a snapshot of the present state, as at the end of a turn. It also stands
  // for the end of a prompt that follows within kMarkTokens tokens.
  void mark() { marked_ = tokens_; }
  // Keeps the snapshot at `tokens` tokens, which the step that begins there takes if there is none,
  // in place of the one held before.
  void hold(int64_t tokens) { held_ = tokens; }
  int64_t held() const { return find(held_) != nullptr ? held_ : 0; }
  // Another sequence with the first `tokens` tokens, a resume point. Throws BudgetError.
  LinearState fork(int64_t tokens, StreamView stream) const;

  // Allocates its device memory. Throws BudgetError.
  void reserve();
  bool reserved() const { return static_cast<bool>(memory_); }
  // Frees its device memory, which no step used yet.
  void release();
  struct Step {
    int64_t first = 0;  // row of the step
    int64_t tokens = 0;
    bool decodes = false;
    int64_t rollback_tokens = -1;  // see KvSequence; 0: no snapshots
  };
  // Begins a step, in reserved memory. `stream` comes after earlier work. Takes snapshots while
  // the host's budget allows. Throws UsageError if the state is not known (after abort()).
  LinearPart begin(const Step& step, StreamView stream);
  // The step's kernels were enqueued, and have run.
  void commit();
  // `computed`: they may have run. Then the state is known at its resume points alone.
  void abort(bool computed);

  // The states that it has, by tokens.
  std::vector<StatePoint> points() const;
  // Copies bytes from `offset` on of one of them. Waits.
  void export_state(const StatePoint& point, size_t offset, std::span<std::byte> bytes,
                    StreamView stream) const;
  // Gives an empty state, in reserved memory, the next bytes of an exported one. It is at its
  // tokens with the last of them. Waits.
  void import_state(const StatePoint& point, size_t offset, std::span<const std::byte> bytes,
                    StreamView stream);
  size_t imported() const { return imported_; }  // bytes, of one that is not complete

  uint64_t device_bytes() const { return memory_.bytes(); }
  // Calls visit(address, bytes) for the memory of each snapshot; forks share some.
  template <typename Visit>
  void visit_snapshots(const Visit& visit) const {
    for (const auto& one : snapshots_) visit(one.get(), one->memory.bytes());
    if (source_ != nullptr) visit(source_.get(), source_->memory.bytes());
    if (cut_ != nullptr) visit(cut_.get(), cut_->memory.bytes());
  }

 private:
  struct Snapshot {
    StatePoint point;
    Buffer memory;
  };
  using Snapshots = std::vector<std::shared_ptr<const Snapshot>>;

  static constexpr int kMarkTokens = 256;

  bool known() const { return live_ || tokens_ == 0 || source_ != nullptr; }
  const std::shared_ptr<const Snapshot>* find(int64_t tokens) const;
  StatePoint point(int64_t tokens, int open, bool decoded) const;
  // Both throw BudgetError.
  std::shared_ptr<Snapshot> allocate(const StatePoint& point) const;
  std::shared_ptr<const Snapshot> copy_now(StreamView stream) const;
  void load(const Snapshot& snapshot, StreamView stream);
  void copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream) const;
  void copy_in(const StatePoint& point, size_t offset, std::span<const std::byte> bytes,
               StreamView stream);
  template <typename Visit>
  void for_each_layer(int open, size_t offset, size_t bytes, const Visit& visit) const;
  void add(std::shared_ptr<const Snapshot> snapshot);
  void drop_old(int64_t rollback_tokens);
  void keep_turn(const Step& step, StreamView stream);

  Device* device_;
  const LinearLayout* layout_;
  const SnapshotRule* rule_;
  Buffer memory_;
  int64_t tokens_ = 0;
  int open_ = 0;          // tokens of the open block
  bool decoded_ = false;  // how the last token was computed
  bool live_ = false;     // memory_ has the state
  size_t imported_ = 0;
  int64_t marked_ = -1;                     // tokens at the last mark()
  int64_t held_ = 0;                        // see hold()
  std::shared_ptr<const Snapshot> source_;  // of `tokens_` tokens, if it has not
  Snapshots snapshots_;                     // by tokens
  std::optional<Step> step_;
  std::shared_ptr<Snapshot> cut_;  // receives the state at a cut within the step
};

}  // namespace fasa
