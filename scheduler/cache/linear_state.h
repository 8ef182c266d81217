// One sequence's state of the layers with linear attention: in device memory as of its last token,
// and in host memory as of some earlier ones (snapshots), because a state cannot go back.
//
// Prefilled tokens advance it in blocks that end at multiples of kLinearBlock, counted from where
// the prefilled tokens begin; decoded tokens one by one. So its bits depend on which tokens were
// prefilled and which decoded, and not on the steps they came in. A decode step of several tokens
// advances it by the first; the others wait (kMaxWaiting), so that what is dropped leaves no trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/linear_params.h"
#include "offload/device.h"
#include "offload/fence.h"
#include "scheduler/step/sequence_memory.h"

namespace fasa {

class LinearState final : public SequenceMemory {
 public:
  // All must outlive it. An empty sequence, without memory. `fences`: of the steps; none: each step
  // has passed when it is committed.
  LinearState(Device& device, const LinearLayout& layout, const SnapshotRule& rule,
              Fences* fences = nullptr)
      : device_(&device), layout_(&layout), rule_(&rule), fences_(fences) {}

  void share(const SequenceMemory& parent, int64_t tokens, const Stream& stream) override;
  // All tokens, those of a snapshot, or 0.
  int64_t resume_point(int64_t tokens) const override;
  void truncate(int64_t tokens) override;
  // The next step takes a snapshot of the present state, as at the end of a turn. It also stands
  // for the end of a prompt that follows within kMarkTokens tokens.
  void mark_turn() override { marked_ = tokens_; }
  // Keeps the snapshot at `tokens` tokens, which the step that begins there takes if there is none,
  // in place of the one held before.
  void hold(int64_t tokens) override { held_ = tokens; }
  int64_t held() const override { return find(held_) != nullptr ? held_ : 0; }

  void reserve() override;
  bool reserved() const override { return static_cast<bool>(memory_); }
  void back_to(bool reserved) noexcept override;
  // Takes snapshots while the host's budget allows. Throws UsageError if the state is not known
  // (after abort(), or pages without a state). An undoable step keeps the state before it on the
  // host.
  void begin(const Step& step, const Stream& stream) override;
  // The most tokens of the next decode step of which a part may stay. The first step behind
  // prefilled tokens has one: their open block is where tokens wait.
  int max_drafted() const { return decoded_ || open_ == 0 ? 1 + kMaxWaiting : 1; }
  // Tokens [begin, end) of the step, for kernels: a part for each snapshot that they pass, in
  // waves. `row`: of the first one.
  std::vector<LinearPart> parts(int64_t begin, int64_t end, int64_t row) const;
  void commit(int64_t tokens) override;
  // If it may have been computed, the state is known at its resume points alone.
  void abort(int64_t tokens, bool computed) override;

  // The states that it has, by tokens.
  std::vector<StatePoint> points() const;
  // Copies bytes from `offset` on of one of them. Waits. Throws UsageError.
  void export_state(const StatePoint& point, size_t offset, std::span<std::byte> bytes,
                    StreamView stream) const;
  // Gives an empty state, of a sequence of `length` tokens, the next bytes of an exported one. It
  // is at its tokens with the last of them. Waits. Throws UsageError, BudgetError.
  void import_state(int64_t length, const StatePoint& point, size_t offset,
                    std::span<const std::byte> bytes, StreamView stream);

  uint64_t device_bytes() const override { return memory_.bytes(); }
  void visit_host_memory(const Visit& visit) const override;

 private:
  struct Snapshot {
    StatePoint point;
    Buffer memory;
    Fences* fences = nullptr;  // none: it is written
    Fence written;

    Snapshot() = default;
    Snapshot(const Snapshot&) = delete;  // shared
    Snapshot& operator=(const Snapshot&) = delete;
    ~Snapshot();  // waits for the kernels that write it
  };
  using Snapshots = std::vector<std::shared_ptr<const Snapshot>>;

  static constexpr int kMarkTokens = 256;

  bool known() const { return live_ || tokens_ == 0 || source_ != nullptr; }
  const std::shared_ptr<const Snapshot>* find(int64_t tokens) const;
  int waiting() const { return decoded_ ? open_ : 0; }
  int open_at(int64_t tokens) const;
  StatePoint point(int64_t tokens, int open, bool decoded) const;
  // Both throw BudgetError.
  std::shared_ptr<Snapshot> allocate(const StatePoint& point) const;
  std::shared_ptr<const Snapshot> copy_now(const Stream& stream) const;
  void load(const Snapshot& snapshot, StreamView stream);
  void check_import(int64_t length, const StatePoint& point, size_t offset, size_t bytes) const;
  void copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream) const;
  void copy_out(const StatePoint& point, size_t offset, std::span<std::byte> bytes,
                StreamView stream) const;
  void copy_in(const StatePoint& point, size_t offset, std::span<const std::byte> bytes,
               StreamView stream);
  template <typename Work>
  void for_each_layer(int open, size_t offset, size_t bytes, const Work& work) const;
  void add(std::shared_ptr<const Snapshot> snapshot);
  void drop_old(int64_t rollback_tokens);
  void keep_turn(const Step& step, const Stream& stream);
  void make_cuts(const Step& step);

  Device* device_;
  const LinearLayout* layout_;
  const SnapshotRule* rule_;
  Fences* fences_;
  Buffer memory_;
  int64_t tokens_ = 0;
  int open_ = 0;                                 // as in StatePoint
  bool decoded_ = false;                         // how the last token was computed
  bool live_ = false;                            // memory_ has the state
  size_t imported_ = 0;                          // bytes, of a state that is not complete
  int64_t marked_ = -1;                          // tokens at the last mark()
  int64_t held_ = 0;                             // see hold()
  std::shared_ptr<const Snapshot> source_;       // of `tokens_` tokens, if it has not
  Snapshots snapshots_;                          // by tokens
  Step step_;                                    // the last one that began
  int64_t drafts_ = 0;                           // its tokens that may be dropped
  std::vector<std::shared_ptr<Snapshot>> cuts_;  // receive the states at cuts within the step
};

}  // namespace fasa
