// Serves many requests on one model and one runtime: continuous batching, one step at a time, on a
// thread of its own. Those who decode go first; prompts come in chunks between their steps.
//
// A request's tokens do not depend on who else is served: every part of a step is independent of its
// batch, and what was evicted is computed again as it was computed before (token_log.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/model.h"
#include "runtime/serve/engine_inbox.h"
#include "runtime/serve/engine_options.h"
#include "runtime/serve/engine_status.h"
#include "runtime/serve/engine_steps.h"
#include "runtime/serve/generation_request.h"
#include "runtime/serve/served_choices.h"
#include "runtime/serve/session_memory.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

class EngineLoop {
 public:
  // `model` and `runtime` are the loop's alone until it is destroyed. `tokenizer` may be null: answers
  // have no text then. All outlive the loop. Throws BudgetError, and UsageError for a folder of
  // sessions that cannot be used.
  EngineLoop(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
             const EngineOptions& options);
  // Cancels what is under way.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;  // its thread refers to it
  EngineLoop& operator=(const EngineLoop&) = delete;

  const EngineOptions& options() const { return options_; }
  // The conversations that were on disk at the start; once.
  std::vector<Conversation> take_found() { return memory_.take_found(); }

  // --- from any thread ---
  // The request's number, for cancel(); none where as many wait as may.
  std::optional<uint64_t> submit(GenerationRequest request) {
    return inbox_.submit(std::move(request));
  }
  void cancel(uint64_t request) { inbox_.cancel(request); }
  // Forgets a cached session of that salt. False: there is none of that number.
  bool forget(const std::string& salt, uint64_t session) { return inbox_.forget(salt, session); }
  // Gives up the memory of all cached sessions that are not being served.
  void evict_idle() { inbox_.evict_idle(); }
  EngineStatus status() const { return inbox_.status(); }
  // Suspends all cached sessions to disk; status().suspension.busy tells until when.
  void suspend_idle_now() { inbox_.suspend(); }
  // None is taken any more, those that are here go on.
  void drain() { inbox_.drain(); }
  bool idle() const { return inbox_.idle(); }
  // What the device died of; the loop has ended then, and every request got the error.
  std::optional<std::string> failure() const { return inbox_.failure(); }

 private:
  void run();
  void step();
  void end_with(const DeviceError& error);
  void take_commands();
  void take_submitted();
  // Of those that have finished, what they leave is kept.
  void remove_finished();
  void publish();

  Runtime& runtime_;
  Device& device_;
  const EngineOptions options_;
  EngineInbox inbox_;
  EngineStatus stats_;  // the thread's own; published after each step
  ServedChoices choices_{stats_};
  SessionMemory memory_;
  EngineSteps steps_;
  std::chrono::steady_clock::time_point fetches_read_{};
  std::thread thread_;
};

}  // namespace fasa::serve
