/// \file
/// The sequences API: fasa owns the pages.
#ifndef FASA_RUNTIME_HPP
#define FASA_RUNTIME_HPP

#include <fasa/options.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace fasa {
inline namespace v0 {

struct StepPart {
  Sequence sequence = 0;
  int tokens = 1;
  StepMode mode = StepMode::kDecode;
};

class Runtime {
 public:
  explicit Runtime(const Options& options) {
    fasa_runtime* made = nullptr;
    check(fasa_runtime_create(detail::COptions(options).get(), &made));
    handle_.reset(made);
  }

  Sequence create() {
    Sequence made = 0;
    check(fasa_sequence_create(c(), &made));
    return made;
  }
  /// A new sequence that shares the first `tokens` tokens.
  Sequence fork(Sequence parent, int64_t tokens) {
    Sequence made = 0;
    check(fasa_sequence_fork(c(), parent, tokens, &made));
    return made;
  }
  void truncate(Sequence sequence, int64_t tokens) {
    check(fasa_sequence_truncate(c(), sequence, tokens));
  }
  /// Limits the rollback window, see fasa_sequence_set_rollback_tokens().
  void set_rollback_tokens(Sequence sequence, int64_t tokens) {
    check(fasa_sequence_set_rollback_tokens(c(), sequence, tokens));
  }
  void free(Sequence sequence) { check(fasa_sequence_free(c(), sequence)); }
  int64_t length(Sequence sequence) const {
    int64_t tokens = 0;
    check(fasa_sequence_length(c(), sequence, &tokens));
    return tokens;
  }
  /// The most tokens of its next decode step of which end_step() may keep a part.
  int max_drafted(Sequence sequence) {
    int32_t tokens = 0;
    check(fasa_sequence_max_drafted(c(), sequence, &tokens));
    return tokens;
  }
  /// Reserves memory for `tokens` tokens in all, in steps of up to `step_tokens`. Steps within that
  /// cannot fail for lack of memory.
  void reserve(Sequence sequence, int64_t tokens, int step_tokens) {
    check(fasa_sequence_reserve(c(), sequence, tokens, step_tokens));
  }

  /// Prefer class Step to these three.
  void begin_step(std::span<const StepPart> parts) {
    std::vector<fasa_step_part> c_parts;
    for (const StepPart& part : parts) {
      c_parts.push_back({part.sequence, part.tokens, static_cast<fasa_step_mode>(part.mode)});
    }
    check(fasa_begin_step(c(), c_parts.data(), c_parts.size()));
  }
  /// `kept`: of each sequence the tokens that stay; empty: all.
  void end_step(std::span<const int32_t> kept = {}) {
    check(fasa_end_step(c(), kept.data(), kept.size()));
  }
  void abort_step() { check(fasa_abort_step(c())); }

  void append(int layer, const ConstTensorView& k, const ConstTensorView& v,
              Stream* stream = nullptr) {
    check(fasa_append(c(), layer, k.c(), v.c(), detail::c_stream(stream)));
  }
  void attend(int layer, const ConstTensorView& q, const TensorView& out, float* lse = nullptr,
              Stream* stream = nullptr) {
    check(fasa_attend(c(), layer, q.c(), out.c(), lse, detail::c_stream(stream)));
  }
  /// Waits for all calls without a stream.
  void synchronize() { check(fasa_synchronize(c())); }
  /// Stored keys and values of positions first, first + 1, ...
  void read(Sequence sequence, int layer, int64_t first, const TensorView& k, const TensorView& v,
            Stream* stream = nullptr) {
    check(fasa_read(c(), sequence, layer, first, k.c(), v.c(), detail::c_stream(stream)));
  }

  KvMemory memory() const {
    KvMemory memory = FASA_KV_MEMORY_INIT;
    check(fasa_memory(c(), &memory));
    return memory;
  }
  /// The memory that reserve() of an empty sequence would take.
  KvMemory estimate_memory(int64_t tokens, int step_tokens) const {
    KvMemory memory = FASA_KV_MEMORY_INIT;
    check(fasa_estimate_memory(c(), tokens, step_tokens, &memory));
    return memory;
  }
  /// `layer` -1: all. Waits for work under way.
  Metrics metrics(int layer = -1) {
    Metrics metrics = FASA_METRICS_INIT;
    check(fasa_read_metrics(c(), layer, &metrics));
    return metrics;
  }
  void reset_metrics() { check(fasa_reset_metrics(c())); }
  fasa_runtime* c() const { return handle_.get(); }

 private:
  detail::Owner<fasa_runtime, fasa_runtime_destroy> handle_;
};

/// An open step. Its destructor aborts it unless end() was called: its sequences are then
/// unchanged.
class Step {
 public:
  Step(Runtime& runtime, std::span<const StepPart> parts) : runtime_(runtime) {
    runtime.begin_step(parts);
  }
  Step(Runtime& runtime, StepPart part) : Step(runtime, std::span<const StepPart>(&part, 1)) {}
  Step(const Step&) = delete;  // a runtime has one step at a time
  Step& operator=(const Step&) = delete;
  ~Step() {
    if (open_) fasa_abort_step(runtime_.c());
  }
  void end(std::span<const int32_t> kept = {}) {
    runtime_.end_step(kept);
    open_ = false;
  }

 private:
  Runtime& runtime_;
  bool open_ = true;
};

}  // namespace v0
}  // namespace fasa

#endif  // FASA_RUNTIME_HPP
