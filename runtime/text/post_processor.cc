#include "runtime/text/post_processor.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/text/json_part.h"
#include "runtime/text/vocabulary.h"

namespace fasa::text {
namespace {

constexpr size_t kMaxTokensAround = 64;

// Appends the ids of the special token that the template calls `name`.
void add_ids(const JsonPart& part, const std::string& name, std::vector<int32_t>& ids) {
  const JsonPart known = part.object("special_tokens");
  const JsonPart token = known.object(name.c_str());
  for (const nlohmann::json& id : token.array("ids")) {
    const auto value = id.is_number_integer() ? id.get<int64_t>() : -1;
    const bool allowed = value >= 0 && value <= kMaxTokenId;
    if (!allowed || ids.size() == kMaxTokensAround) {
      token.fail("ids", fmt::format("up to {} ids from 0 to {}", kMaxTokensAround, kMaxTokenId));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
}

Surroundings read_template(const JsonPart& part) {
  Surroundings around;
  bool seen = false;
  const nlohmann::json& pieces = part.array("single");
  for (size_t i = 0; i < pieces.size(); ++i) {
    const JsonPart piece(pieces[i], fmt::format("{}.single[{}]", part.name(), i));
    if (piece.has("SpecialToken")) {
      add_ids(part, piece.object("SpecialToken").required_text("id"),
              seen ? around.suffix : around.prefix);
    } else if (seen || piece.object("Sequence").required_text("id") != "A") {
      piece.fail("Sequence", "the sequence \"A\", once");
    } else {
      seen = true;
    }
  }
  if (!seen) part.fail("single", "a template that contains the sequence \"A\"");
  return around;
}

}  // namespace

Surroundings read_post_processor(const nlohmann::json& part, const std::string& place) {
  Surroundings around;
  if (part.is_null()) return around;
  bool seen = false;
  for (const JsonPart& step : steps_of(part, place, "processors")) {
    const std::string type = step.type();
    if (type == "ByteLevel") continue;  // changes offsets only
    if (type != "TemplateProcessing") step.refuse("ByteLevel, TemplateProcessing, Sequence");
    if (seen) {
      throw InputError(
          fmt::format("{}: there are several TemplateProcessing steps; allowed: one", step.name()));
    }
    around = read_template(step);
    seen = true;
  }
  return around;
}

}  // namespace fasa::text
