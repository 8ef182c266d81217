// Serves many requests on one model and one runtime: continuous batching, one step at a time, on
// its own thread. Decoding sequences go first; prompts run between their steps, long ones in pieces
// of a layer (prompt_reader.h), and take turns (prompt_turns.h).
//
// A request's tokens do not depend on other requests: every part of a step is independent of its
// batch, and evicted tokens are recomputed as they were computed before (token_log.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/mtp_cache.h"
#include "runtime/serve/engine_inbox.h"
#include "runtime/serve/engine_options.h"
#include "runtime/serve/engine_status.h"
#include "runtime/serve/engine_steps.h"
#include "runtime/serve/generation_request.h"
#include "runtime/serve/prompt_reader.h"
#include "runtime/serve/served_choices.h"
#include "runtime/serve/session_memory.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

class EngineLoop {
 public:
  // Only the loop uses `model` and `runtime` until it is destroyed. `tokenizer` may be null:
  // answers then have no text. All must outlive the loop. Throws BudgetError, and UsageError if the
  // sessions' folder is not usable.
  EngineLoop(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
             const EngineOptions& options);
  // Cancels active and waiting requests.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;  // its thread refers to it
  EngineLoop& operator=(const EngineLoop&) = delete;

  const EngineOptions& options() const { return options_; }
  // The conversations found on disk at the start. Call once.
  std::vector<Conversation> take_found() { return memory_.take_found(); }

  // --- from any thread ---
  // The request's number, for cancel(); nothing if the queue is full.
  std::optional<uint64_t> submit(GenerationRequest request) {
    return inbox_.submit(std::move(request));
  }
  void cancel(uint64_t request) {
    inbox_.post([=, this] { choices_.cancel(request); });
  }
  // Forgets a cached session of that salt. False: there is no such session.
  bool forget(const std::string& salt, uint64_t session);
  // Adds records to the cached conversation that an answer has ended, before the next request;
  // `ids`: its prompt and the answer. They are kept as long as the conversation, on disk too.
  void attach(AttachedRecords records) {
    inbox_.post([this, records = std::move(records)] { memory_.attach(records); });
  }
  // Removes a record. Conversations that had no other are forgotten.
  void detach(const std::string& salt, const std::string& record) {
    inbox_.post([=, this] { memory_.detach(salt, record); });
  }
  // Frees the memory of all idle cached sessions.
  void evict_idle() {
    inbox_.post([this] { memory_.evict_idle(); });
  }
  EngineStatus status() const { return inbox_.status(); }
  // Suspends all cached sessions to disk; status().suspension.busy is true until it is done.
  void suspend_idle_now() {
    inbox_.post([this] { memory_.suspend_all(); }, true);
  }
  // Refuses new requests; those already submitted are completed.
  void drain() { inbox_.drain(); }
  bool idle() const { return inbox_.idle(); }
  // The message of the device's failure; the loop has then ended and every request got the error.
  std::optional<std::string> failure() const { return inbox_.failure(); }

 private:
  void run();
  void step();
  void end_with(const DeviceError& error);
  void take_commands();
  void take_submitted();
  // Caches the sessions of finished choices.
  void remove_finished();
  void publish();

  Runtime& runtime_;
  Device& device_;
  const EngineOptions options_;
  EngineInbox inbox_;
  EngineStatus stats_;           // the thread's own; published after each step
  std::optional<MtpCache> mtp_;  // if the model was loaded with its head
  ServedChoices choices_{stats_};
  PromptReader reader_;
  SessionMemory memory_;
  EngineSteps steps_;
  std::chrono::steady_clock::time_point fetches_read_{};
  std::thread thread_;
};

}  // namespace fasa::serve
