// Responses of /v1/responses, as records of the engine's conversations.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bindings/http/api/request_fields.h"
#include "bindings/http/record_index.h"

namespace fasa::serve {

// The turns of a conversation up to a response.
struct StoredTurns {
  Records records = {};        // the first turn first
  Json items = Json::array();  // of input and output, in the format of "input"
};

// The record of a response and of its request's input, a list of items.
std::shared_ptr<const Record> response_record(const Json& response, const Json& input);
// The response; nothing if there is none.
std::optional<Json> find_response(const RecordIndex& records, const std::string& salt,
                                  const std::string& id);
// Throws ApiError, naming previous_response_id, if a turn is missing.
StoredTurns turns_until(const RecordIndex& records, const std::string& salt, std::string id);

// "resp_" and digits.
bool is_response_id(const std::string& id);

}  // namespace fasa::serve
