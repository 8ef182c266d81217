// Writes calls as a format spells them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/text/answer/answer_format.h"

namespace fasa::text {

struct WrittenCall {
  std::string name;
  nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
};

// What reads as these calls at the beginning of an answer; of a format with channels, the first.
std::string write_calls(const AnswerFormat& format, std::span<const WrittenCall> calls);

}  // namespace fasa::text
