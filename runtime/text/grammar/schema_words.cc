#include "runtime/text/grammar/schema_words.h"

#include <fmt/format.h>

#include "runtime/base/utf8.h"
#include "runtime/text/grammar/schema_error.h"

namespace fasa::text {
namespace {

using Json = OrderedJson;

constexpr std::string_view kAnnotations[] = {
    "title",     "description", "default",       "examples", "example",    "$schema",
    "$id",       "$comment",    "$defs",         "strict",   "deprecated", "readOnly",
    "writeOnly", "definitions", "discriminator", "nullable", "$anchor",    "externalDocs"};
}  // namespace

bool is_annotation(const std::string& keyword) {
  return is_among(kAnnotations, keyword) || keyword.starts_with("x-");
}

std::string shown(const Json& json) {
  constexpr size_t kShown = 60;
  const std::string whole = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return std::string(cut_text(whole, kShown));
}

std::optional<int64_t> length_at(const Json& schema, const char* keyword, const std::string& place,
                                 int64_t most) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  const bool fits = found->is_number_integer() && *found >= 0 && *found <= most;
  if (!fits) {
    throw SchemaError(place + "." + keyword,
                      fmt::format("{}; allowed: a whole number from 0 to {}", shown(*found), most));
  }
  return found->get<int64_t>();
}

}  // namespace fasa::text
