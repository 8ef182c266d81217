// The prompt of a chat: its messages in the form that the model's template accepts.
#pragma once

#include <cstddef>
#include <ctime>

#include "bindings/http/openai_request.h"
#include "runtime/text/answer/format_choice.h"
#include "runtime/text/chat_template.h"

namespace fasa::serve {

// A template that refuses the conversation's form is asked again with other ones: system messages
// placed, turns that alternate. Throws the first error if it refuses all, and ApiError if the
// template does not show an answer that is to be continued.
text::ChatPrompt chat_prompt(const ChatRequest& request, const text::ChatTemplates& templates,
                             const text::ChosenFormat& chosen, const std::tm& now);

// The bytes of this prompt that the template renders without the part that begins an answer. A
// later prompt parts there at the latest, if the template shows past answers in another way. 0:
// unknown.
size_t history_bytes(const text::ChatPrompt& prompt, const ChatRequest& request,
                     const text::ChatTemplates& templates, const text::ChosenFormat& chosen,
                     const std::tm& now);

}  // namespace fasa::serve
