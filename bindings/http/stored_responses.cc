#include "bindings/http/stored_responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bindings/http/api_error.h"
#include "bindings/http/reply_form.h"

namespace fasa::serve {
namespace {

Json content_of(const Record& record) { return Json::parse(record.data, nullptr, false); }

}  // namespace

bool is_response_id(const std::string& id) { return id.starts_with("resp_"); }

std::shared_ptr<const Record> response_record(const Json& response, const Json& input) {
  const Json content = {{"input", input}, {"response", response}};
  return std::make_shared<Record>(response["id"].get<std::string>(), json_text(content));
}

std::optional<Json> find_response(const RecordIndex& records, const std::string& salt,
                                  const std::string& id) {
  const auto found = is_response_id(id) ? records.find(salt, id) : nullptr;
  if (found == nullptr) return std::nullopt;
  return content_of(*found).at("response");
}

StoredTurns turns_until(const RecordIndex& records, const std::string& salt, std::string id) {
  StoredTurns turns;
  std::vector<Json> contents;
  for (const std::string last = id; !id.empty();) {
    const auto found = is_response_id(id) ? records.find(salt, id) : nullptr;
    if (found == nullptr) {
      throw ApiError(
          400, "invalid_request_error",
          fmt::format("previous_response_id: response \"{}\"{} is not stored here; it "
                      "was deleted, or its conversation was",
                      id.substr(0, 80), id == last ? "" : ", which \"" + last + "\" continues,"),
          "previous_response_id", "previous_response_not_found");
    }
    turns.records.push_back(found);
    const Json& content = contents.emplace_back(content_of(*found));
    const Json& previous = content.at("response").at("previous_response_id");
    id = previous.is_string() ? previous.get<std::string>() : "";
  }
  std::reverse(turns.records.begin(), turns.records.end());
  for (auto turn = contents.rbegin(); turn != contents.rend(); ++turn) {
    for (const Json* items : {&turn->at("input"), &turn->at("response").at("output")}) {
      for (const Json& item : *items) turns.items.push_back(item);
    }
  }
  return turns;
}

}  // namespace fasa::serve
