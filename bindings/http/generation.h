// What a request of any API asks the engine for, and how the answer is to be told.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/http/reply_form.h"
#include "bindings/http/service.h"

namespace fasa::serve {

struct Service::Generation {
  const CompletionFields& fields;
  std::vector<int32_t> prompt;
  std::string text = {};                     // the prompt's, of a chat
  std::optional<MessageFormat> format = {};  // of a chat
  std::shared_ptr<text::TokenGrammar> grammar = {};
  std::unique_ptr<ReplyForm> form;
};

}  // namespace fasa::serve
