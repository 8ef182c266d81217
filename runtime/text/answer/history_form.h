// How a chat template wants the earlier messages of a conversation.
#pragma once

#include <nlohmann/json.hpp>

namespace fasa::text {

struct HistoryForm {
  bool arguments_as_text = false;  // of calls: a text of JSON; else an object
  bool nine_letter_ids = false;    // the ids of calls are nine letters or digits
  bool one_call = false;           // the template shows the first call of a message alone
  bool null_content = false;       // it shows calls only where there is no content, not even ""
  bool text_or_thought = false;    // it refuses content and reasoning beside calls
  bool thinking_parts = false;     // reasoning is a part of a content list, else a member
  bool shows_reasoning = false;    // of turns after the last question
  bool keeps_reasoning = false;    // of turns before it too
  bool system_anywhere = true;     // a system message that is not the first is shown as one
};

// A template's input as the template wants it. Readers of requests make one form in every API:
// {"messages", "tools", ...}; of an assistant's message "content" is text, reasoning is
// "reasoning_content" (or "thinking"), "tool_calls" a list of {"id", "function": {"name",
// "arguments"}} with an object of arguments, or the text if it is no object; a result is
// {"role": "tool", "tool_call_id", "content"}. This adds the names of results (by ids of earlier
// calls), maps ids, spells arguments and reasoning, divides messages of several calls, and drops
// empty lists of calls. `tools` and `documents` become null where they are missing, as transformers
// passes None. System messages stay where they are.
nlohmann::ordered_json in_history_form(nlohmann::ordered_json context, const HistoryForm& form);

}  // namespace fasa::text
