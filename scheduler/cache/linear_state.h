// One sequence's state of the layers with linear attention: in device memory as of its last token,
// and in host memory as of some earlier ones (snapshots), because a state cannot go back.
//
// Prefilled tokens advance it in blocks that end at multiples of kLinearBlock, counted from where
// the prefilled tokens begin; decoded tokens one by one. So its bits depend on which tokens were
// prefilled and which decoded, which is recorded, and not on the steps they came in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/linear_params.h"
#include "offload/device.h"

namespace fasa {

class LinearState {
 public:
  // A snapshot is taken where the position is a multiple of this, and where prefilled tokens follow
  // decoded ones or the reverse (the last kTurns of them): the ends of turns.
  static constexpr int64_t kInterval = 16384;
  static constexpr size_t kTurns = 2;

  // Tokens before `end` that were computed the same way.
  struct Run {
    int64_t end = 0;
    bool decoded = false;
  };

  // Both must outlive it. An empty sequence, without memory.
  LinearState(Device& device, const LinearLayout& layout) : device_(&device), layout_(&layout) {}

  int64_t tokens() const { return tokens_; }
  // How the tokens were computed, in order.
  const std::vector<Run>& runs() const { return runs_; }
  // The most tokens, at most `tokens`, whose state is known: all, those of a snapshot, or 0.
  int64_t resume_point(int64_t tokens) const;
  void truncate(int64_t tokens);  // to a resume point
  // Another sequence with the first `tokens` tokens, a resume point. Throws BudgetError.
  LinearState fork(int64_t tokens, StreamView stream) const;

  // Allocates its device memory. Throws BudgetError.
  void reserve();
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

  uint64_t device_bytes() const { return memory_.bytes(); }
  uint64_t host_bytes() const;  // of snapshots; those shared with forks count in each

 private:
  struct Snapshot {
    int64_t tokens = 0;
    int open = 0;
    Buffer memory;
  };
  using Snapshots = std::vector<std::shared_ptr<const Snapshot>>;

  bool known() const { return live_ || tokens_ == 0 || source_ != nullptr; }
  const std::shared_ptr<const Snapshot>* find(int64_t tokens) const;
  // Both throw BudgetError.
  std::shared_ptr<Snapshot> allocate(int64_t tokens, int open) const;
  std::shared_ptr<const Snapshot> copy_now(StreamView stream) const;
  void load(const Snapshot& snapshot, StreamView stream);
  void copy_layers(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                   int64_t bytes, CopyKind kind, StreamView stream) const;
  void add(std::shared_ptr<const Snapshot> snapshot);
  void drop_old(int64_t rollback_tokens);
  void keep_turn(const Step& step, StreamView stream);

  Device* device_;
  const LinearLayout* layout_;
  Buffer memory_;
  int64_t tokens_ = 0;
  int open_ = 0;                            // tokens of the open block
  bool live_ = false;                       // memory_ has the state
  std::shared_ptr<const Snapshot> source_;  // of `tokens_` tokens, if it has not
  Snapshots snapshots_;                     // by tokens
  std::vector<Run> runs_;
  std::optional<Step> step_;
  std::shared_ptr<Snapshot> cut_;  // receives the state at a cut within the step
};

}  // namespace fasa
