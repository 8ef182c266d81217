// The slots of llama.cpp's server. Here any request can continue any conversation of its API key,
// so that a slot only remembers the conversation computed last for it. Each key has its own slots.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/serve/session_manifest.h"

namespace fasa::serve {

// Thread-safe.
class Slots {
 public:
  explicit Slots(int count) : count_(static_cast<size_t>(count)) {}

  // The slot of a request: `wanted` or, if it is -1, the one whose conversation the prompt
  // continues, else the least recently used. Throws ApiError (id_slot).
  int take(const std::string& salt, int64_t wanted, std::span<const int32_t> prompt);
  void set(const std::string& salt, int slot, std::vector<int32_t> ids);
  // The tokens of its conversation; empty: none. Throws ApiError (id_slot).
  std::vector<int32_t> ids(const std::string& salt, int64_t slot);

 private:
  struct Slot {
    std::vector<int32_t> ids;
    uint64_t used = 0;
  };
  Slot& at(const std::string& salt, int64_t slot);

  const size_t count_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Slot>> slots_;  // by salt
  uint64_t uses_ = 0;
};

// The record of a conversation that was saved by a name; no path.
std::string slot_record_id(const std::string& name);
std::shared_ptr<const Record> slot_record(const std::string& name, std::span<const int32_t> ids);
std::vector<int32_t> ids_of(const Record& record);

}  // namespace fasa::serve
