// Hears of a request on the engine's thread, and lets a test wait for what it hears.
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
    std::vector<float> logprobs;
    std::optional<FinishReason> reason;
  };

  explicit Recorder(int choices = 1, size_t stop_after = SIZE_MAX)
      : choices_(static_cast<size_t>(choices)), stop_after_(stop_after) {}

  void on_prefill(int64_t computed, int64_t total, int64_t cached) override {
    const std::lock_guard lock(mutex_);
    EXPECT_GE(computed, prefilled_);
    prefilled_ = computed, total_ = total, cached_ = cached;
  }
  bool on_token(int choice, const TokenChoice& token) override {
    const std::lock_guard lock(mutex_);
    Choice& of = choices_[static_cast<size_t>(choice)];
    EXPECT_FALSE(of.reason.has_value()) << "a token after the end";
    of.ids.push_back(token.id);
    of.logprobs.push_back(token.logprob);
    changed_.notify_all();
    return of.ids.size() < stop_after_;
  }
  void on_finish(int choice, FinishReason reason) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(choices_[static_cast<size_t>(choice)].reason.has_value()) << "finished twice";
    choices_[static_cast<size_t>(choice)].reason = reason;
    ++ended_;
    changed_.notify_all();
  }
  void on_error(ErrorKind kind, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    error_kind_ = kind, error_ = message;
    ended_ = choices_.size();
    changed_.notify_all();
  }

  // The first choice, once all have ended.
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
  const size_t stop_after_;
  size_t ended_ = 0;
  std::string error_;
  std::optional<ErrorKind> error_kind_;
  int64_t prefilled_ = 0, total_ = 0, cached_ = 0;
};

}  // namespace fasa::serve
