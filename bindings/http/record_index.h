// The records that the engine's conversations carry, by API key and id. A record goes with the last
// conversation that has it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/serve/session_manifest.h"

namespace fasa::serve {

// Thread-safe.
class RecordIndex {
 public:
  // Replaces one of the same id.
  void add(const std::string& salt, const std::shared_ptr<const Record>& record);
  // Null: there is none.
  std::shared_ptr<const Record> find(const std::string& salt, const std::string& id) const;
  // False: there is none.
  bool erase(const std::string& salt, const std::string& id);

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::weak_ptr<const Record>> records_;
  size_t swept_ = 0;  // entries after the last removal of expired ones
};

}  // namespace fasa::serve
