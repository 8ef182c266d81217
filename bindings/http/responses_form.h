// Responses of /v1/responses.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/reply_form.h"
#include "bindings/http/request_fields.h"

namespace fasa::serve {

struct ResponsesHead {
  std::string id;       // "resp_..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  Json echo;  // request fields that the response repeats
};

class ResponsesForm final : public ReplyForm {
 public:
  explicit ResponsesForm(ResponsesHead head) : head_(std::move(head)) {}

  std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) override;
  std::string begin(int choices) override;
  std::string piece(const ReplyPart& part) override;
  std::string end_choice(int choice, const AnswerMessage& message,
                         const std::vector<TokenText>& rest) override;
  std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) override;
  std::string error(const ApiError& error) override;

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };

  std::string event(const char* type, Json fields);
  std::string open(Item item, const ReplyPart& part);
  std::string close(const char* status);
  Json item_json(const char* status) const;
  Json part_json(const std::string& text) const;
  Json place() const;  // of the open item, in events
  Json response(const char* status, Json output) const;
  Json finished(const std::vector<AnswerMessage>& choices, const Usage& usage) const;

  const ResponsesHead head_;
  int64_t sequence_ = 0;
  Item item_ = Item::kNone;  // the open one
  ToolCall call_;            // of an open call
  std::string text_;         // of an open message or thought
  Json output_ = Json::array();
};

}  // namespace fasa::serve
