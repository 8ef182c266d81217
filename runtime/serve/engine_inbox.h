// Where other threads meet the engine loop's: what they ask of it, and the numbers that they read.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/serve/engine_status.h"
#include "runtime/serve/generation_request.h"

namespace fasa::serve {

struct SubmittedRequest {
  uint64_t id;
  GenerationRequest request;
  std::chrono::steady_clock::time_point at;
};

// What has been asked since it was last taken.
struct EngineCommands {
  std::vector<uint64_t> cancelled;  // requests, each submitted before
  std::vector<uint64_t> forgotten;  // sessions
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
  void evict_idle();
  void suspend();
  void drain();
  void stop();
  EngineStatus status() const;
  bool idle() const;
  std::optional<std::string> failure() const;

  // --- from the loop's ---
  // Waits until something is asked, at most until `due`, and with `busy` not at all. False: the loop
  // is to end.
  bool wait(bool busy, std::optional<std::chrono::steady_clock::time_point> due);
  EngineCommands take_commands();
  std::vector<SubmittedRequest> take_submitted();
  // `waiting`: of those that were taken.
  void publish(const EngineStatus& status, size_t waiting);
  // Before a step too: who has a seat no longer takes a place in the queue.
  void count(size_t running, size_t waiting);
  // Nothing is taken any more.
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
