// What a template reads: messages, tools, control tokens, and the clock.
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
  void set(std::string_view name, Value value);  // in place of one of the same name
};

// A text that users cannot have written, or that they have.
Value text_value(std::string_view text, Origin origin);

// The members of a JSON object. Texts and keys in it are a user's, except what programs write: the
// control tokens (bos_token and its like) at the top, and each message's role where it is one of
// the known ones. Throws InputError: no object, not UTF-8, nested deeper than `depth`, numbers
// beyond 64 bits. `name`: the file, for errors. The clock stays as it is made.
Context parse_context(std::string_view json, const std::string& name, int depth = 64);

// "2026-11-22", or with a time behind a T or blank, "2026-11-22T18:30:05". Throws UsageError.
// `name`: the option that it came by.
std::tm parse_time(std::string_view text, std::string_view name);
// Seconds since 1970, in UTC.
std::tm time_of_epoch(int64_t seconds);

}  // namespace fasa::jinja
