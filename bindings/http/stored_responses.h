// The responses of /v1/responses that the engine's conversations carry as records, by API key and
// id. A response goes with the last conversation that has it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "bindings/http/request_fields.h"
#include "runtime/serve/session_manifest.h"

namespace fasa::serve {

// The turns of a conversation up to a response.
struct StoredTurns {
  Records records;             // the first turn first
  Json items = Json::array();  // of input and output, in the format of "input"
};

// Thread-safe.
class StoredResponses {
 public:
  // The record of a response and of its request's input, a list of items.
  static std::shared_ptr<const Record> record_of(const Json& response, const Json& input);
  // Records of other kinds are left out.
  void add(const std::string& salt, const std::shared_ptr<const Record>& record);
  // The response; nothing if there is none.
  std::optional<Json> find(const std::string& salt, const std::string& id) const;
  // Throws ApiError, naming previous_response_id, if a turn is missing.
  StoredTurns turns_until(const std::string& salt, std::string id) const;
  // False: there is no such response.
  bool erase(const std::string& salt, const std::string& id);

 private:
  using Key = std::pair<std::string, std::string>;  // salt, id

  std::shared_ptr<const Record> record(const std::string& salt, const std::string& id) const;

  mutable std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Record>> records_;
  size_t swept_ = 0;  // entries after the last removal of expired ones
};

}  // namespace fasa::serve
