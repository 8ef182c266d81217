// Input of a template: messages, tools, control tokens, and the clock.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/template/value.h"

namespace fasa::jinja {

struct Context {
  std::vector<std::pair<std::string, Value>> variables;
  std::tm now{};

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);  // replaces a value of the same name
};

// A text value that is marked as trusted or as a user's.
Value text_value(std::string_view text, Origin origin);

// The members of a JSON object. Texts and keys count as a user's, except those that programs write:
// control tokens (bos_token etc.) at the top level, and each message's role if it is a known one.
// Throws InputError if the input is not an object or not UTF-8, is nested deeper than `depth`, or
// has numbers beyond 64 bits. `name`: the file, for errors. The clock keeps its default.
Context parse_context(std::string_view json, const std::string& name, int depth = 64);

// Parses "2026-11-22" or, with a time after a T or blank, "2026-11-22T18:30:05". Throws UsageError.
// `name`: the option, for errors.
std::tm parse_time(std::string_view text, std::string_view name);
// Seconds since 1970, in UTC.
std::tm time_of_epoch(int64_t seconds);

}  // namespace fasa::jinja
