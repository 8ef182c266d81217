// Records a request's events on the engine's thread, and lets a test wait for them.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/serve/generation_request.h"

namespace fasa::serve {

class Recorder final : public RequestObserver {
 public:
  struct Choice {
    std::vector<int32_t> ids;
    std::vector<double> logprobs;
    AnswerEnd end = AnswerEnd::kOpen;
  };

  explicit Recorder(int choices = 1) : choices_(static_cast<size_t>(choices)) {}

  void on_prefill(int64_t computed, int64_t total, int64_t cached) override {
    const std::lock_guard lock(mutex_);
    EXPECT_LE(computed, total);
    prefilled_ = computed, cached_ = cached;
  }
  void on_token(int choice, const Answer& answer) override {
    const std::lock_guard lock(mutex_);
    Choice& of = choices_[static_cast<size_t>(choice)];
    EXPECT_EQ(of.end, AnswerEnd::kOpen) << "a token after the end";
    of.ids = answer.tokens();
    of.logprobs.clear();
    for (const TokenLogprobs& token : answer.logprobs()) of.logprobs.push_back(token.logprob);
    changed_.notify_all();
  }
  void on_end(int choice, const Answer& answer) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(choices_[static_cast<size_t>(choice)].end, AnswerEnd::kOpen) << "ended twice";
    choices_[static_cast<size_t>(choice)].end = answer.end();
    ++ended_;
    changed_.notify_all();
  }
  void on_error(ErrorKind kind, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    error_kind_ = kind, error_ = message;
    ended_ = choices_.size();
    changed_.notify_all();
  }

  // Returns the first choice after all have ended.
  const Choice& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ >= choices_.size(); });
    return choices_[0];
  }
  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return choices_[0].ids.size() >= count || ended_ > 0; });
  }
  const std::vector<Choice>& choices() const { return choices_; }
  const std::string& error() const { return error_; }
  std::optional<ErrorKind> error_kind() const { return error_kind_; }
  int64_t prefilled() const { return prefilled_; }
  int64_t cached() const { return cached_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Choice> choices_;
  size_t ended_ = 0;
  std::string error_;
  std::optional<ErrorKind> error_kind_;
  int64_t prefilled_ = 0, cached_ = 0;
};

}  // namespace fasa::serve
