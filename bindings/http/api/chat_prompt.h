// The prompt of a chat: its messages in the form that the model's template accepts.
#pragma once

#include <cstddef>
#include <ctime>

#include "bindings/http/api/openai_request.h"
#include "runtime/text/answer/format_choice.h"
#include "runtime/text/chat_template.h"

namespace fasa::serve {

// What prompts are rendered with.
struct PromptSetting {
  const text::ChatTemplates& templates;
  const text::ChosenFormat& chosen;
  std::tm now;
  const Json& variables;  // of the template, where a request has none of that name
};

// A template that refuses the conversation's form is asked again with other ones: system messages
// placed, turns that alternate. Throws the first error if it refuses all, and ApiError if the
// template does not show an answer that is to be continued.
text::ChatPrompt chat_prompt(const ChatRequest& request, const PromptSetting& setting);

// Where a later prompt may part from this one, in bytes; 0: unknown.
struct PromptBorders {
  size_t history = 0;  // before the part that begins an answer
  size_t user = 0;     // behind the user's last message
};
// Where the prompt's rendering of its first `messages` messages ends, in bytes; 0: unknown.
size_t end_of_messages(const text::ChatPrompt& prompt, const ChatRequest& request, size_t messages,
                       const PromptSetting& setting);
PromptBorders prompt_borders(const text::ChatPrompt& prompt, const ChatRequest& request,
                             const PromptSetting& setting);

}  // namespace fasa::serve
