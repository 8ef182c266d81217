#include "runtime/serve/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa::serve {

using Clock = std::chrono::steady_clock;

EngineLoop::EngineLoop(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
                       const EngineOptions& options)
    : runtime_(runtime),
      device_(model.device()),
      options_(options),
      inbox_(options.max_waiting),
      mtp_(open_mtp_cache(model, runtime)),
      reader_(model, runtime, options_),
      memory_(runtime, options_, choices_, reader_, inbox_, stats_),
      steps_(model, runtime, tokenizer, options_, choices_, reader_, memory_, stats_,
             mtp_ ? &*mtp_ : nullptr) {
  publish();
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
  inbox_.stop();
  thread_.join();
}

bool EngineLoop::forget(const std::string& salt, uint64_t session) {
  const auto sessions = inbox_.status().sessions;
  const bool there = std::any_of(sessions->begin(), sessions->end(), [&](const auto& one) {
    return one.id == session && one.salt == salt;
  });
  if (there) inbox_.post([=, this] { memory_.forget(session); });
  return there;
}

// --- the thread ---

void EngineLoop::run() {
  while (
      inbox_.wait(!choices_.active().empty() || !choices_.waiting().empty(), memory_.next_due())) {
    take_commands();
    try {
      step();
    } catch (const DeviceError& error) {
      return end_with(error);
    } catch (const LostSession& error) {
      memory_.give_up(error);
    } catch (const std::exception& error) {
      log_warning(fmt::format("a step failed: {}", error.what()));
      choices_.fail_all(ErrorKind::kDevice, error.what());
      remove_finished();
    }
    remove_finished();
    publish();
    choices_.tell_ended();
  }
  take_submitted();
  choices_.cancel_all();
  remove_finished();
  publish();
  choices_.tell_ended();
}

void EngineLoop::step() {
  memory_.admit_waiting();
  inbox_.count(choices_.active().size(), choices_.waiting().size());
  steps_.decode();
  memory_.resume_next(steps_.piece_seconds());
  steps_.prefill();
  memory_.suspend_some(steps_.piece_seconds());
}

// Results of a lost device cannot be trusted, and it cannot be recovered: it is not used again, not
// even to read counters.
void EngineLoop::end_with(const DeviceError& error) {
  inbox_.fail(error.what());
  take_submitted();
  choices_.fail_all(error.kind(), error.what());
  remove_finished();
  stats_.running = 0;
  inbox_.publish(stats_, 0);
  choices_.tell_ended();
}

void EngineLoop::take_commands() {
  const auto commands = inbox_.take_commands();
  take_submitted();  // after reading cancellations: each names a request that is already submitted
  for (const auto& command : commands) command();
  remove_finished();
}

void EngineLoop::take_submitted() {
  for (SubmittedRequest& one : inbox_.take_submitted()) {
    auto active = std::make_unique<ActiveChoice>();
    active->id = one.id;
    // Other models can be cut within their steps.
    const bool stops_at_marks = runtime_.geometry().linear.layers > 0;
    std::vector<int64_t> marks;
    if (stops_at_marks) marks = {one.request.history_tokens, one.request.user_tokens};
    active->wanted = WantedTokens(one.request.prompt, std::move(marks));
    active->request = std::move(one.request);
    active->submitted = active->last_token = one.at;
    ++stats_.requests;
    stats_.prompt_tokens += active->request.prompt.size();
    try {
      active->answer = steps_.new_answer(active->request, 0);
    } catch (const UsageError& error) {
      choices_.fail(*active, error.kind(), error.what());
    }
    choices_.waiting().push_back(std::move(active));
  }
}

void EngineLoop::remove_finished() {
  memory_.keep_finished();
  choices_.end_finished();
}

// Runs before observers are notified of the end, so that a client that has its answer finds it in
// the counters and its session in the cache.
void EngineLoop::publish() {
  constexpr double kFetchesEvery = 0.5;  // seconds: reading the counters takes a moment
  if (choices_.active().empty() || seconds_between(fetches_read_, Clock::now()) > kFetchesEvery) {
    stats_.fetches = runtime_.metrics();
    fetches_read_ = Clock::now();
  }
  stats_.memory = runtime_.memory();
  stats_.device_memory = device_.memory(MemorySpace::kDevice);
  stats_.host_memory = device_.memory(MemorySpace::kHost);
  memory_.publish();
  stats_.running = static_cast<int>(choices_.active().size());
  inbox_.publish(stats_, choices_.waiting().size());
}

}  // namespace fasa::serve
