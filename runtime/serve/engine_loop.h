// Serves many requests on one model and one runtime: continuous batching, one step at a time, on a
// thread of its own. Those who decode go first; prompts come in chunks between their steps.
//
// A request's tokens do not depend on who else is served: every part of a step is independent of its
// company, and what was evicted is computed again as it was computed before (token_log.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/doors/runtime.h"
#include "runtime/llm/model.h"
#include "runtime/serve/active_choice.h"
#include "runtime/serve/engine_inbox.h"
#include "runtime/serve/engine_status.h"
#include "runtime/serve/generation_request.h"
#include "runtime/serve/pace.h"
#include "runtime/serve/prefix_cache.h"
#include "runtime/serve/session_parking.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

struct EngineOptions {
  int max_sequences = 16;  // that are computed at once
  int max_waiting = 64;
  int prefill_chunk = 512;
  double max_step_seconds = 0;  // 0: see Pace
  // A turn of a conversation that goes on is decoded where it has at most so many new tokens. Bits
  // depend on it, and on nothing that happened to the conversation meanwhile.
  int sparse_turn_tokens = 0;
  size_t log_bytes = size_t{64} << 20;
  std::optional<ParkingOptions> sessions = {};  // none: what does not fit into memory is forgotten
};

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
  std::vector<Conversation> take_found() { return std::exchange(found_, {}); }

  // --- from any thread ---
  // The request's number, for cancel(); none where as many wait as may.
  std::optional<uint64_t> submit(GenerationRequest request) {
    return inbox_.submit(std::move(request));
  }
  void cancel(uint64_t request) { inbox_.cancel(request); }
  // Forgets a kept session of that salt. False: there is none of that number.
  bool forget(const std::string& salt, uint64_t session) { return inbox_.forget(salt, session); }
  // Gives up the memory of all that is kept and not being served.
  void evict_idle() { inbox_.evict_idle(); }
  EngineStatus status() const { return inbox_.status(); }
  // All that is kept goes to disk; status().parking.busy tells until when.
  void park_idle_now() { inbox_.park(); }
  // None is taken any more, those that are here go on.
  void drain() { inbox_.drain(); }
  bool idle() const { return inbox_.idle(); }
  // What the device died of; the loop has ended then, and every request got the error.
  std::optional<std::string> failure() const { return inbox_.failure(); }

 private:
  using ActivePtr = std::unique_ptr<ActiveChoice>;
  struct Prefill {
    std::vector<ActiveChoice*> batch;
    std::vector<int> counts;  // tokens of each
    int64_t tokens = 0;       // of all
  };

  void run();
  void end_with(const DeviceError& error);
  void take_commands();
  void take_submitted();
  std::unique_ptr<Answer> new_answer(const GenerationRequest& request, int choice) const;
  void admit_waiting();
  bool admit(ActiveChoice& active);
  void place(ActiveChoice& active);
  void step();
  void decode_step();
  void wake_step();
  void prefill_step();
  void park_idle();
  std::optional<std::chrono::steady_clock::time_point> next_due() const;
  std::vector<ActiveChoice*> decoding() const;
  std::vector<int> decode_counts(std::span<ActiveChoice* const> batch) const;
  Prefill next_prefill() const;
  std::span<const float> run_step(std::span<ActiveChoice* const> batch, std::span<const int> counts,
                                  StepMode mode);
  void computed(ActiveChoice& active, int count, StepMode mode, std::span<const float> logits);
  void start_choices(ActiveChoice& active, std::span<const float> logits);
  void sample(ActiveChoice& active, std::span<const float> logits);
  void finish(ActiveChoice& active);
  void cancel(ActiveChoice& active);
  void fail(ActiveChoice& active, ErrorKind kind, const std::string& message);
  bool make_room(bool may_preempt);
  bool evict_oldest();
  void preempt(ActiveChoice& active);
  void step_back(ActiveChoice& active);
  void wake(ActiveChoice& active);
  void give_up(const LostSession& error);
  void release_lost();
  void fail_all(ErrorKind kind, const std::string& message);
  void remove_finished();
  void publish();
  void list_sessions();
  void tell_ended();

  Model& model_;
  Runtime& runtime_;
  const text::Tokenizer* const tokenizer_;
  const EngineOptions options_;
  EngineInbox inbox_;
  PrefixCache cache_;
  std::optional<SessionParking> parking_;
  std::vector<Conversation> found_;
  Pace pace_;
  std::list<ActivePtr> active_;   // oldest first
  std::list<ActivePtr> waiting_;  // oldest first
  std::list<ActivePtr> ended_;    // whose observers have yet to hear of it
  bool crowded_ = false;          // no room for one more until one of those served has ended
  uint64_t listed_ = 0;           // the cache's changes that numbers_.sessions shows
  EngineStatus numbers_;          // the thread's own; published after each step
  std::chrono::steady_clock::time_point fetches_read_{};
  std::thread thread_;
};

}  // namespace fasa::serve
