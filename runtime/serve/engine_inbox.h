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

// Commands since they were last taken.
struct EngineCommands {
  std::vector<uint64_t> cancelled;  // requests, each submitted before
  std::vector<uint64_t> forgotten;  // sessions
  std::vector<AttachedRecords> attached;
  std::vector<std::pair<std::string, std::string>> detached;  // salts and records
  bool evict = false;
  bool suspend = false;
};

class EngineInbox {
 public:
  explicit EngineInbox(int max_waiting) : max_waiting_(max_waiting) {}

  // --- from any thread; see EngineLoop ---
  std::optional<uint64_t> submit(GenerationRequest request);
  void cancel(uint64_t request);
  bool forget(const std::string& salt, uint64_t session);
  void attach(AttachedRecords records);
  void detach(const std::string& salt, const std::string& record);
  void evict_idle();
  void suspend();
  void drain();
  void stop();
  EngineStatus status() const;
  bool idle() const;
  std::optional<std::string> failure() const;

  // --- from the loop's ---
  // Waits for a command, at most until `due`; returns at once if `busy`. False: the loop must end.
  bool wait(bool busy, std::optional<std::chrono::steady_clock::time_point> due);
  EngineCommands take_commands();
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
  EngineCommands commands_;
  EngineStatus published_;
  std::optional<std::string> failure_;
  uint64_t next_id_ = 1;
  int waiting_count_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
};

}  // namespace fasa::serve
