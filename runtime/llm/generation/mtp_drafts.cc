#include "runtime/llm/generation/mtp_drafts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {

MtpDrafts::MtpDrafts(MtpCache& cache, int64_t first) : cache_(cache), first_(first) {
  sequence_.emplace(cache.runtime());
  with_memory([&] {
    waiting_states_ = cache_.allocate_states(kMaxWaiting);
    own_states_ = cache_.allocate_states(kMaxWaiting);
  });
}

void MtpDrafts::reserve(int64_t tokens) {
  const int64_t own = tokens - first_;
  const auto piece = static_cast<int>(std::min<int64_t>(own, MtpCache::kPieceTokens));
  with_memory([&] {
    cache_.head().reserve(piece);
    cache_.runtime().reserve(sequence_->id(), own + kMost, piece);
  });
}

// Answers do not depend on drafts: without memory there are none.
template <typename Work>
void MtpDrafts::with_memory(const Work& work) {
  if (!sequence_) return;
  try {
    work();
  } catch (const BudgetError& error) {
    log_warning_once(fmt::format("no memory for drafts of kind mtp: {}", error.what()));
    release_memory();
  }
}

bool MtpDrafts::release_memory() {
  if (!sequence_) return false;
  sequence_.reset();
  proposal_.clear();
  waiting_ = 0;
  waiting_states_ = Buffer();
  own_states_ = Buffer();
  return true;
}

float* MtpDrafts::step_states(int tokens) {
  float* states = nullptr;
  with_memory([&] { states = cache_.states(tokens); });
  return states;
}

void MtpDrafts::computed(float* states, int tokens) {
  if (states == nullptr) release_memory();
  with_memory([&] {
    if (waiting_ + tokens > kMaxWaiting) feed_waiting();
    // The token behind the last state is not known yet.
    const int direct = tokens > kMaxWaiting ? tokens - 1 : 0;
    feed(states, direct);
    take(states + int64_t{direct} * cache_.hidden(), tokens - direct);
  });
}

// States wait until drafts are wanted.
void MtpDrafts::take(float* states, int tokens) {
  Device& device = cache_.head().device();
  const StreamView stream = cache_.head().stream();
  const auto row = static_cast<size_t>(cache_.hidden());
  device.copy(waiting_states_.as<float>() + static_cast<size_t>(waiting_) * row, states,
              static_cast<size_t>(tokens) * row * sizeof(float), CopyKind::kDeviceToDevice, stream);
  device.synchronize(stream);
  waiting_ += tokens;
}

// One step of the head, which predicts behind its last token if drafts follow (`last`).
std::span<const float> MtpDrafts::step(std::span<const int32_t> tokens, float* given, bool last) {
  const auto count = static_cast<int>(tokens.size());
  const StepMode mode = count == 1 ? StepMode::kDecode : StepMode::kPrefill;
  const StepSequence step[] = {{sequence_->id(), count, mode}};
  return cache_.head().step(cache_.runtime(), tokens, step,
                            {.no_logits = !last,
                             .states = last ? own_states_.as<float>() : nullptr,
                             .given_states = given});
}

// The head reads states of the next `tokens` tokens, each with the token behind it.
void MtpDrafts::feed(float* states, int tokens) {
  for (int done = 0; done < tokens;) {
    const int count = std::min(tokens - done, MtpCache::kPieceTokens);
    step(std::span(tokens_).subspan(static_cast<size_t>(fed_) + 1, static_cast<size_t>(count)),
         states + int64_t{done} * cache_.hidden(), false);
    fed_ += count;
    done += count;
  }
}

void MtpDrafts::feed_waiting() { feed(waiting_states_.as<float>(), std::exchange(waiting_, 0)); }

// Drafts behind the first one come from states that the head predicted: it keeps no rows of those.
void MtpDrafts::draft(int count) {
  const int rows = std::exchange(waiting_, 0);
  const auto first = static_cast<size_t>(fed_) + 1;
  std::span<const float> logits = step(std::span(tokens_).subspan(first, static_cast<size_t>(rows)),
                                       waiting_states_.as<float>(), true);
  fed_ += rows;
  float* state = own_states_.as<float>() + int64_t{rows - 1} * cache_.hidden();
  for (;;) {
    const auto best = std::max_element(logits.begin(), logits.end());
    proposal_.push_back(static_cast<int32_t>(best - logits.begin()));
    if (std::ssize(proposal_) == count) break;
    logits =
        step(std::span(proposal_).last(1), std::exchange(state, own_states_.as<float>()), true);
  }
  cache_.runtime().truncate(sequence_->id(), fed_);
}

std::span<const int32_t> MtpDrafts::propose(int most, int others, const BatchTimes& times) {
  proposal_.clear();
  if (waiting_ == 0 || most <= 0) return {};
  const double cost = times.mean() > 0 ? draft_seconds_ / times.mean() : 0;
  const int count = drafts_that_pay(record_.rate(), std::min(most, kMost), others, times, cost);
  // What did not pay is tried again after a while.
  if (count == 0) record_.fade(0.98);
  if (count == 0) return {};
  const auto begin = std::chrono::steady_clock::now();
  with_memory([&] { draft(count); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  draft_seconds_ = draft_seconds_ == 0 ? seconds.count() / count
                                       : 0.9 * draft_seconds_ + 0.1 * seconds.count() / count;
  return proposal_;
}

void MtpDrafts::judged(int right) {
  if (proposal_.empty()) return;
  record_.add(right, static_cast<int>(std::ssize(proposal_)));
  proposal_.clear();
}

}  // namespace fasa
