// The interface between the engine loop's thread and others: commands in, statistics out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/serve/engine_status.h"
#include "runtime/serve/generation_request.h"
#include "runtime/serve/session_manifest.h"

namespace fasa::serve {

struct SubmittedRequest {
  uint64_t id;
  GenerationRequest request;
  std::chrono::steady_clock::time_point at;
};

// Records for the conversation of these tokens. `saved`, if not null, suspends it now and is called
// on the loop's thread: with its bytes once it is on disk, or with nothing if that failed.
struct AttachedRecords {
  std::string salt = {};
  std::vector<int32_t> ids = {};
  Records records = {};
  std::function<void(std::optional<uint64_t>)> saved = nullptr;
};

class EngineInbox {
 public:
  explicit EngineInbox(int max_waiting) : max_waiting_(max_waiting) {}

  // --- from any thread; see EngineLoop ---
  std::optional<uint64_t> submit(GenerationRequest request);
  // `command` runs on the loop's thread, between two steps. `suspends`: its status is busy from
  // now on.
  void post(std::function<void()> command, bool suspends = false);
  void drain();
  void stop();
  EngineStatus status() const;
  bool idle() const;
  std::optional<std::string> failure() const;

  // --- from the loop's ---
  // Waits for a command, at most until `due`; returns at once if `busy`. False: the loop must end.
  bool wait(bool busy, std::optional<std::chrono::steady_clock::time_point> due);
  std::vector<std::function<void()>> take_commands();
  std::vector<SubmittedRequest> take_submitted();
  // `waiting`: requests that the loop has taken and not yet admitted.
  void publish(const EngineStatus& status, size_t waiting);
  // Also before a step: an admitted request no longer occupies the queue.
  void count(size_t running, size_t waiting);
  // Refuses all further requests.
  void fail(const std::string& why);

 private:
  const int max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SubmittedRequest> submitted_;
  std::vector<std::function<void()>> commands_;  // since they were last taken
  bool suspends_ = false;                        // one of them does
  EngineStatus published_;
  std::optional<std::string> failure_;
  uint64_t next_id_ = 1;
  int waiting_count_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
};

}  // namespace fasa::serve
