#include "bindings/http/stored_responses.h"

#include <fmt/format.h>

#include <algorithm>

#include "bindings/http/api_error.h"
#include "bindings/http/reply_form.h"

namespace fasa::serve {
namespace {

constexpr const char* kPrefix = "resp_";

Json content_of(const Record& record) { return Json::parse(record.data, nullptr, false); }

}  // namespace

std::shared_ptr<const Record> StoredResponses::record_of(const Json& response, const Json& input) {
  const Json content = {{"input", input}, {"response", response}};
  return std::make_shared<Record>(response["id"].get<std::string>(), reply_text(content));
}

void StoredResponses::add(const std::string& salt, const std::shared_ptr<const Record>& record) {
  constexpr size_t kFew = 1000;
  if (!record->id.starts_with(kPrefix)) return;
  const std::lock_guard lock(mutex_);
  records_[{salt, record->id}] = record;
  if (records_.size() < 2 * swept_ + kFew) return;
  std::erase_if(records_, [](const auto& one) { return one.second.expired(); });
  swept_ = records_.size();
}

std::shared_ptr<const Record> StoredResponses::record(const std::string& salt,
                                                      const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find({salt, id});
  return found == records_.end() ? nullptr : found->second.lock();
}

std::optional<Json> StoredResponses::find(const std::string& salt, const std::string& id) const {
  const auto found = record(salt, id);
  if (found == nullptr) return std::nullopt;
  return content_of(*found).at("response");
}

StoredTurns StoredResponses::turns_until(const std::string& salt, std::string id) const {
  StoredTurns turns;
  std::vector<Json> contents;
  for (const std::string last = id; !id.empty();) {
    const auto found = record(salt, id);
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

bool StoredResponses::erase(const std::string& salt, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find({salt, id});
  if (found == records_.end()) return false;
  const bool there = !found->second.expired();
  records_.erase(found);
  return there;
}

}  // namespace fasa::serve
