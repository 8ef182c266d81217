#include "runtime/llm/gguf/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/log.h"
#include "runtime/text/end_tokens.h"

namespace fasa {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 21;
constexpr const char* kEndIds = "tokenizer.ggml.eos_token_ids";

// Keys "tokenizer.ggml.KIND_token_id" of tokens that end an answer, and all others.
constexpr std::string_view kEndKinds[] = {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"};
constexpr std::string_view kOtherKinds[] = {"bos", "unknown", "padding"};

// Borders of parts when filling in the middle: control tokens whatever the file says.
constexpr std::string_view kFillBorders[] = {
    "<|fim_prefix|>", "<fim-prefix>",    "<fim_prefix>",    "<｜fim▁begin｜>", "<PRE>",
    "▁<PRE>",         "<|code_prefix|>", "<|prefix|>",      "<|fim_suffix|>",  "<fim-suffix>",
    "<fim_suffix>",   "<｜fim▁hole｜>",  "<SUF>",           "▁<SUF>",          "<|code_suffix|>",
    "<|suffix|>",     "<|fim_middle|>",  "<fim-middle>",    "<fim_middle>",    "<｜fim▁end｜>",
    "<MID>",          "▁<MID>",          "<|code_middle|>", "<|middle|>"};
// Borders of a message's parts that stay in the text, whatever the file says.
constexpr std::string_view kShownBorders[] = {"<|channel|>", "<|message|>", "<|start|>",
                                              "<|constrain|>"};
// Tokens by which ends_answer() decides about others.
constexpr std::string_view kNeighbours[] = {"<|plamo:eos|>"};

std::string key_of(std::string_view kind) {
  return fmt::format("tokenizer.ggml.{}_token_id", kind);
}

const std::unordered_map<std::string_view, GgufTokenType>& types_by_spelling() {
  static const auto made = [] {
    std::unordered_map<std::string_view, GgufTokenType> types;
    for (const auto text : text::end_spellings()) types[text] = GgufTokenType::kControl;
    for (const auto text : kFillBorders) types[text] = GgufTokenType::kControl;
    for (const auto text : kShownBorders) types[text] = GgufTokenType::kUserDefined;
    for (const auto text : kNeighbours) types[text] = GgufTokenType::kControl;
    return types;
  }();
  return made;
}

// An array's element as an id; far out of range if it is none.
int64_t id_of(double number) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  return number >= -1 && number < 1e9 ? static_cast<int64_t>(number) : kNone;
}

GgufTokenType type_of(double number) {
  const bool known = number >= 1 && number <= 4;
  return known ? static_cast<GgufTokenType>(number) : GgufTokenType::kNormal;
}

}  // namespace

GgufVocabulary::GgufVocabulary(const GgufHeader& header)
    : header_(header), texts_(header.texts("tokenizer.ggml.tokens")) {
  if (texts_.empty() || texts_.size() > kMaxTokens) {
    header.fail("tokenizer.ggml.tokens", fmt::format("1 to {} texts", kMaxTokens));
  }
  const std::vector<double> types = header.numbers("tokenizer.ggml.token_type");
  if (!types.empty() && types.size() < texts_.size()) {
    header.fail("tokenizer.ggml.token_type", "one value per token");
  }
  types_.assign(texts_.size(), GgufTokenType::kNormal);
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (!types.empty()) types_[id] = type_of(types[id]);
    if (texts_[id].empty()) texts_[id] = made_.emplace_back(fmt::format("[EMPTY_{}]", id));
    if (types_by_spelling().contains(texts_[id])) known_.emplace(texts_[id], id);
  }
  override_types();
}

void GgufVocabulary::override_types() {
  const auto has = [&](std::string_view text) { return known_.contains(text); };
  for (const auto& [text, id] : known_) {
    types_[id] = types_by_spelling().at(text);
    if (text::ends_answer(text, has)) continue;
    types_[id] = text == "</s>" ? GgufTokenType::kNormal : GgufTokenType::kUserDefined;
  }
}

std::optional<int64_t> GgufVocabulary::id_of_key(std::string_view kind) const {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (header_.has(key_of(kind))) return header_.integer(key_of(kind), kMin, kMax);
  if (header_.text("tokenizer.ggml.model") != "llama") return std::nullopt;
  if (kind == "unknown") return 0;
  if (kind == "bos") return 1;
  if (kind == "eos") return 2;
  return std::nullopt;
}

std::optional<size_t> GgufVocabulary::named(std::string_view kind) const {
  const auto id = id_of_key(kind);
  if (!id || *id < 0 || *id >= std::ssize(texts_)) return std::nullopt;
  return static_cast<size_t>(*id);
}

std::vector<int64_t> GgufVocabulary::ends() const {
  std::vector<int64_t> ids;
  const auto has = [&](std::string_view text) { return known_.contains(text); };
  const auto add = [&](int64_t id) {
    if (id < 0 || id >= std::ssize(texts_)) return;
    if (text::ends_answer(texts_[static_cast<size_t>(id)], has)) ids.push_back(id);
  };
  for (const std::string_view kind : kEndKinds) add(id_of_key(kind).value_or(-1));
  for (const double id : header_.numbers(kEndIds)) add(id_of(id));
  for (const std::string_view text : text::end_spellings()) {
    if (const auto found = known_.find(text); found != known_.end()) {
      add(static_cast<int64_t>(found->second));
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void GgufVocabulary::warn_of_bad_ids() const {
  const auto check = [&](const std::string& key, int64_t id) {
    if (id >= -1 && id < std::ssize(texts_)) return;  // -1: none
    log_warning_once(fmt::format("{}: key {} names token {}; allowed: 0 to {}; it is ignored",
                                 header_.name(), key, id, texts_.size() - 1));
  };
  const auto check_kind = [&](std::string_view kind) {
    if (header_.has(key_of(kind))) check(key_of(kind), *id_of_key(kind));
  };
  for (const std::string_view kind : kEndKinds) check_kind(kind);
  for (const std::string_view kind : kOtherKinds) check_kind(kind);
  for (const double id : header_.numbers(kEndIds)) check(kEndIds, id_of(id));
}

}  // namespace fasa
