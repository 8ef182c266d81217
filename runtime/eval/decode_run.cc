#include "runtime/eval/decode_run.h"

#include <algorithm>
#include <array>
#include <vector>

#include "offload/store/retention.h"
#include "runtime/eval/shared_prompt.h"

namespace fasa {
namespace {

// A sequence outside of its runtime.
class StoredSequence {
 public:
  StoredSequence(Runtime& runtime, SequenceId id) : tokens_(runtime.length(id)) {
    const PageBytes bytes = runtime.traits().page;
    const int64_t first = runtime.info(id).first_page;
    for (int64_t page = 0; page * kPageTokens < tokens_; ++page) {
      const bool full = (page + 1) * kPageTokens <= tokens_;
      pages_.push_back({std::vector<std::byte>(bytes.rows),
                        std::vector<std::byte>(full ? bytes.slices : 0),
                        page < first ? bytes.rows - bytes.window_rows : bytes.rows});
      const PageSpans spans{pages_.back().rows, pages_.back().slices};
      runtime.exchange().export_pages(id, page, {&spans, 1});
    }
    for (const StatePoint& point : runtime.states(id)) {
      if (point.tokens != tokens_) continue;
      point_ = point;
      state_.resize(point.bytes);
      runtime.exchange().export_state(id, point, 0, state_);
    }
  }

  void load(Runtime& runtime, SequenceId id) const {
    std::vector<ConstPageSpans> spans;
    for (const Page& page : pages_) {
      spans.push_back({std::span(page.rows).first(page.row_bytes), page.slices});
    }
    runtime.exchange().import_pages(id, tokens_, spans);
    if (!state_.empty()) runtime.exchange().import_state(id, point_, 0, state_);
  }

 private:
  struct Page {
    std::vector<std::byte> rows, slices;
    size_t row_bytes;  // without window rows that were freed
  };
  int64_t tokens_;
  std::vector<Page> pages_;
  StatePoint point_;
  std::vector<std::byte> state_;
};

}  // namespace

DecodeRun::DecodeRun(Model& model, Runtime& runtime, int64_t tokens, SharedPrompt* shared)
    : model_(model), shared_(shared) {
  sequence_.emplace(runtime);
  reserve(tokens);
}

DecodeRun::DecodeRun(const DecodeRun& other, int64_t tokens) : model_(other.model_) {
  sequence_.emplace(other.runtime(), other.runtime().fork(other.id(), tokens));
}

void DecodeRun::reserve(int64_t tokens) {
  const int chunk = static_cast<int>(std::min<int64_t>(kEvalPrefillChunk, tokens));
  model_.reserve(chunk);
  if (shared_ != nullptr) runtime().set_rollback_tokens(id(), kUnlimitedRollback);
  runtime().reserve(id(), tokens, chunk);
  tokens_ = tokens;
}

void DecodeRun::prefill(std::span<const int32_t> ids) {
  if (shared_ != nullptr && shared_->copy_to(*this, ids)) return;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min<size_t>(kEvalPrefillChunk, ids.size() - done);
    run(ids.subspan(done, count), StepMode::kPrefill, {.no_logits = true});
    done += count;
  }
  if (shared_ != nullptr) shared_->keep(*this, ids);
}

std::span<const float> DecodeRun::read(std::span<const int32_t> ids) {
  std::span<const float> logits;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min<size_t>(kEvalPrefillChunk, ids.size() - done);
    logits = run(ids.subspan(done, count), StepMode::kPrefill, {});
    done += count;
  }
  return logits;
}

std::span<const float> DecodeRun::step(int32_t id) { return run({&id, 1}, StepMode::kDecode, {}); }

std::span<const float> DecodeRun::steps(std::span<const int32_t> ids) {
  return run(ids, StepMode::kDecode, {.all_logits = true});
}

std::span<const float> DecodeRun::run(std::span<const int32_t> ids, StepMode mode,
                                      const ForwardOptions& output) {
  const std::array step{StepSequence{id(), static_cast<int>(ids.size()), mode}};
  return model_.step(runtime(), ids, step, output);
}

void DecodeRun::leave_and_return() {
  Runtime& owner = runtime();
  const StoredSequence stored(owner, id());
  sequence_.reset();
  sequence_.emplace(owner);
  if (tokens_ > 0) reserve(tokens_);
  stored.load(owner, id());
}

}  // namespace fasa
