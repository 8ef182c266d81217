// A request of any API: what the engine generates, and the form of the reply.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/http/reply_form.h"
#include "bindings/http/service.h"

namespace fasa::serve {

struct Service::Generation {
  const CompletionFields& fields;
  std::vector<std::vector<int32_t>> prompts;  // one but for completions of several prompts
  std::string text = {};                      // the prompt's, for a chat
  std::string title = {};                     // of the conversation
  std::shared_ptr<const text::AnswerReading> reading = {};  // for a chat
  AnswerGrammar grammar = {};
  std::unique_ptr<ReplyForm> form;
  // Called before `form` ends, with the tokens of the first prompt and its answer. May be null.
  std::function<void(std::vector<int32_t>)> ended = nullptr;
};

}  // namespace fasa::serve
