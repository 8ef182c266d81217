// Which format a model's answers have: asked of its files and of its chat template.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/text/answer/answer_format.h"
#include "runtime/text/chat_template.h"

namespace fasa::text {

struct ChosenFormat {
  AnswerFormat format;
  // "response_template": of tokenizer_config.json. "rendered": the template writes calls so.
  // "described": its source has the format's marks. "generic": it shows no tools, the system
  // message describes them. "unknown": it writes calls in a format that the table lacks.
  std::string source;

  bool has_calls() const { return source != "unknown"; }
  bool is_generic() const { return source == "generic"; }
};

// Renders the template a few times with made-up messages. Templates may fail; nothing is thrown.
ChosenFormat choose_answer_format(const ChatTemplates& templates);

// For users: the format's name, what named it, its marks, and the form of the history.
nlohmann::ordered_json format_json(const ChosenFormat& chosen);

// The row that a "response_template" describes, with its marks of thoughts; nothing: none does.
// `json`: its text.
std::optional<AnswerFormat> format_of_response_template(const std::string& json);

}  // namespace fasa::text
