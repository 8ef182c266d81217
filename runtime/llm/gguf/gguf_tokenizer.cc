#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTokens = size_t{1} << 21;
// Maximum bytes of a piece whose splits are tried; SentencePiece's own pieces have a few dozen.
constexpr size_t kMaxSplitBytes = 256;

enum TokenType : int { kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr const char* kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr const char* kBlanks = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string words_pattern(const char* digits) {
  return fmt::format(R"({}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{})",
                     kContractions, digits, kBlanks);
}

// Pattern: words in capitals or lower case, each followed by `ending`.
std::string cased_pattern(const std::string& ending, const char* digits) {
  constexpr const char* kUpper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  constexpr const char* kLower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  constexpr const char* kBefore = R"([^\r\n\p{L}\p{N}]?)";
  return fmt::format(R"({0}{1}*{2}+{3}|{0}{1}+{2}*{3}|{4}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{5})",
                     kBefore, kUpper, kLower, ending, digits, kBlanks);
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json split_by(const std::string& pattern) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            byte_level(false)}}};
}

// How a byte-level vocabulary splits text, by the pre-tokenizer's name in the file.
struct PreTokenizer {
  std::string_view name;
  Json parts;
  Json normalizer;
  bool ignore_merges = false;
  bool adds_beginning = false;  // default if the file has no key for it
};

PreTokenizer find_pre_tokenizer(const GgufHeader& header) {
  const std::string key = "tokenizer.ggml.pre";
  const std::string_view name = header.text(key).value_or("");
  if (name == "llama-bpe" || name == "llama3") {
    return {name, split_by(words_pattern(R"(\p{N}{1,3})")), nullptr, true, true};
  }
  if (name == "qwen2") {
    return {name, split_by(words_pattern(R"(\p{N})")), {{"type", "NFC"}}};
  }
  if (name == "gpt-2") return {name, byte_level(true), nullptr};
  if (name == "smollm") {
    return {
        name,
        {{"type", "Sequence"},
         {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)}}},
        nullptr};
  }
  if (name == "tekken") {
    return {name, split_by(cased_pattern("", R"(\p{N})")), nullptr, true, true};
  }
  if (name == "gpt-4o") {
    const std::string ending = fmt::format("{}?", kContractions);
    return {name, split_by(cased_pattern(ending, R"(\p{N}{1,3})")), nullptr, true};
  }
  header.fail(key, "llama-bpe, qwen2, gpt-2, smollm, tekken, gpt-4o");
}

// As a quoted JSON string. Throws InputError for invalid UTF-8.
std::string quoted(std::string_view text, const GgufHeader& header) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw InputError(
        fmt::format("{}: tokenizer.ggml.tokens or merges are not valid UTF-8", header.name()));
  }
}

using Vocabulary = std::unordered_map<std::string_view, size_t>;

Vocabulary vocabulary_of(const std::vector<std::string_view>& tokens, const GgufHeader& header) {
  Vocabulary vocabulary;
  vocabulary.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    const auto [place, is_new] = vocabulary.emplace(tokens[id], id);
    if (is_new) continue;
    throw InputError(fmt::format("{}: tokenizer.ggml.tokens: tokens {} and {} have the same text",
                                 header.name(), place->second, id));
  }
  return vocabulary;
}

struct Merge {
  std::string_view left;
  std::string_view right;
  double score;
};

// SentencePiece stores scores, not merges: merges are all splits of a piece into two pieces, best
// score first.
std::vector<Merge> merges_by_score(const std::vector<std::string_view>& tokens,
                                   const Vocabulary& vocabulary,
                                   const std::vector<double>& scores) {
  std::vector<Merge> merges;
  std::vector<Merge> of_piece;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view piece = tokens[id];
    if (piece.size() > kMaxSplitBytes) continue;
    of_piece.clear();
    for (size_t at = 1; at < piece.size(); ++at) {
      const Merge merge{piece.substr(0, at), piece.substr(at), scores[id]};
      if (vocabulary.contains(merge.left) && vocabulary.contains(merge.right)) {
        of_piece.push_back(merge);
      }
    }
    const auto ids = [&](const Merge& merge) {
      return std::pair(vocabulary.at(merge.left), vocabulary.at(merge.right));
    };
    std::sort(of_piece.begin(), of_piece.end(),
              [&](const Merge& a, const Merge& b) { return ids(a) < ids(b); });
    merges.insert(merges.end(), of_piece.begin(), of_piece.end());
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const Merge& a, const Merge& b) { return a.score > b.score; });
  return merges;
}

std::vector<Merge> merges_as_written(const GgufHeader& header) {
  const std::string key = "tokenizer.ggml.merges";
  std::vector<Merge> merges;
  for (const std::string_view text : header.texts(key)) {
    const size_t blank = text.find(' ', 1);
    if (blank == std::string_view::npos) header.fail(key, "pairs of pieces separated by a space");
    merges.push_back({text.substr(0, blank), text.substr(blank + 1), 0});
  }
  return merges;
}

// Writes tokenizer.json in parts: one JSON document would take ten times the memory.
class Writer {
 public:
  Writer(const GgufHeader& header, const std::vector<std::string_view>& tokens)
      : header_(header), tokens_(tokens), types_(header.numbers("tokenizer.ggml.token_type")) {
    if (!types_.empty() && types_.size() != tokens.size()) {
      header.fail("tokenizer.ggml.token_type", "one value per token");
    }
  }

  int type(size_t id) const {
    return types_.empty() ? 1 : static_cast<int>(std::clamp(types_[id], 0.0, 100.0));
  }
  void member(std::string_view key, const Json& value) { raw(key, value.dump()); }
  void raw(std::string_view key, const std::string& text) {
    text_ += text_.empty() ? '{' : ',';
    text_ += fmt::format("\"{}\":{}", key, text);
  }
  std::string finish() { return std::move(text_) + "}"; }

  std::string added_tokens() const {
    std::string text = "[";
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (type(id) != kControl && type(id) != kUserDefined) continue;
      text += fmt::format(
          R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
          R"("normalized":false,"special":{}}})",
          text.size() > 1 ? "," : "", id, quoted(tokens_[id], header_), type(id) == kControl);
    }
    return text + "]";
  }
  // `model`: all its members but the vocabulary and merges.
  std::string model(const Json& model, const std::vector<Merge>& merges) const {
    std::string text = model.dump();
    text.back() = ',';
    text += "\"vocab\":{";
    for (size_t id = 0; id < tokens_.size(); ++id) {
      text += fmt::format("{}{}:{}", id == 0 ? "" : ",", quoted(tokens_[id], header_), id);
    }
    text += "},\"merges\":[";
    bool first = true;
    for (const Merge& merge : merges) {
      text += fmt::format("{}[{},{}]", first ? "" : ",", quoted(merge.left, header_),
                          quoted(merge.right, header_));
      first = false;
    }
    return text + "]}";
  }

 private:
  const GgufHeader& header_;
  const std::vector<std::string_view>& tokens_;
  std::vector<double> types_;
  std::string text_;
};

// The token that a key names; nullopt where it is missing.
std::optional<size_t> token_of(const GgufHeader& header, const char* kind, size_t tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", kind);
  if (!header.has(key)) return std::nullopt;
  return static_cast<size_t>(header.integer(key, 0, static_cast<int64_t>(tokens) - 1));
}

// Null if no tokens are added around a text.
Json post_processor(const GgufHeader& header, const std::vector<std::string_view>& tokens,
                    bool adds_beginning) {
  Json single = Json::array();
  Json special = Json::object();
  const auto add = [&](const char* kind) {
    const auto id = token_of(header, kind, tokens.size());
    if (!id) return;
    const std::string text(tokens[*id]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  if (header.boolean_or("tokenizer.ggml.add_bos_token", adds_beginning)) add("bos");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (header.boolean_or("tokenizer.ggml.add_eos_token", false)) add("eos");
  if (single.size() == 1) return nullptr;
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

Json bpe_model(bool ignore_merges, const Json& unknown) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", !unknown.is_null()},
          {"byte_fallback", !unknown.is_null()},
          {"ignore_merges", ignore_merges}};
}

std::string byte_level_json(const GgufHeader& header, const std::vector<std::string_view>& tokens) {
  const PreTokenizer pre = find_pre_tokenizer(header);
  vocabulary_of(tokens, header);
  Writer writer(header, tokens);
  writer.member("version", "1.0");
  writer.raw("added_tokens", writer.added_tokens());
  writer.member("normalizer", pre.normalizer);
  writer.member("pre_tokenizer", pre.parts);
  writer.member("post_processor", post_processor(header, tokens, pre.adds_beginning));
  Json decoder = byte_level(true);
  decoder["add_prefix_space"] = true;
  writer.member("decoder", decoder);
  writer.raw("model",
             writer.model(bpe_model(pre.ignore_merges, nullptr), merges_as_written(header)));
  return writer.finish();
}

constexpr const char* kBlank = "\u2581";

Json blank_normalizer(bool prefix) {
  Json parts = Json::array();
  if (prefix) parts.push_back({{"type", "Prepend"}, {"prepend", kBlank}});
  parts.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kBlank}});
  return {{"type", "Sequence"}, {"normalizers", parts}};
}

Json blank_decoder(bool prefix) {
  Json parts = {{{"type", "Replace"}, {"pattern", {{"String", kBlank}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (prefix) {
    parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", parts}};
}

std::string sentence_piece_json(const GgufHeader& header,
                                const std::vector<std::string_view>& tokens) {
  const std::vector<double> scores = header.numbers("tokenizer.ggml.scores");
  if (scores.size() != tokens.size()) header.fail("tokenizer.ggml.scores", "one value per token");
  const Vocabulary vocabulary = vocabulary_of(tokens, header);
  const bool prefix = header.boolean_or("tokenizer.ggml.add_space_prefix", true);
  Writer writer(header, tokens);
  Json unknown = "<unk>";
  if (const auto id = token_of(header, "unknown", tokens.size())) {
    unknown = std::string(tokens[*id]);
  }
  writer.member("version", "1.0");
  writer.raw("added_tokens", writer.added_tokens());
  writer.member("normalizer", blank_normalizer(prefix));
  writer.member("pre_tokenizer", nullptr);
  writer.member("post_processor", post_processor(header, tokens, true));
  writer.member("decoder", blank_decoder(prefix));
  writer.raw("model",
             writer.model(bpe_model(false, unknown), merges_by_score(tokens, vocabulary, scores)));
  return writer.finish();
}

std::vector<std::string_view> tokens_of(const GgufHeader& header) {
  const std::string key = "tokenizer.ggml.tokens";
  std::vector<std::string_view> tokens = header.texts(key);
  if (tokens.empty() || tokens.size() > kMaxTokens) {
    header.fail(key, fmt::format("1 to {} texts", kMaxTokens));
  }
  return tokens;
}

// A text, or a list of {name, template} where the file names several; null for none.
Json chat_templates(const GgufHeader& header) {
  const std::string key = "tokenizer.chat_template";
  const auto only = header.text(key);
  const std::vector<std::string_view> names = header.texts("tokenizer.chat_templates");
  if (names.empty()) return only ? Json(std::string(*only)) : Json(nullptr);
  Json list = Json::array();
  if (only) list.push_back({{"name", "default"}, {"template", std::string(*only)}});
  for (const std::string_view name : names) {
    if (only && name == "default") continue;
    const std::string own = fmt::format("{}.{}", key, name);
    const auto text = header.text(own);
    if (!text) header.fail(own, "a text, because tokenizer.chat_templates names it");
    list.push_back({{"name", std::string(name)}, {"template", std::string(*text)}});
  }
  return list;
}

}  // namespace

std::string gguf_tokenizer_config_json(const GgufHeader& header) {
  const std::vector<std::string_view> tokens = tokens_of(header);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::pair<const char*, const char*> kinds[] = {{"bos", "bos_token"},
                                                       {"eos", "eos_token"},
                                                       {"unknown", "unk_token"},
                                                       {"padding", "pad_token"}};
  for (const auto& [kind, key] : kinds) {
    if (const auto id = token_of(header, kind, tokens.size())) {
      config[key] = std::string(tokens[*id]);
    }
  }
  if (Json chat = chat_templates(header); !chat.is_null()) {
    config["chat_template"] = std::move(chat);
  }
  try {
    return config.dump();
  } catch (const Json::exception&) {
    throw InputError(fmt::format("{}: tokenizer.chat_template is not valid UTF-8", header.name()));
  }
}

bool has_gguf_tokenizer(const GgufHeader& header) {
  const auto model = header.text("tokenizer.ggml.model");
  return model && *model != "no_vocab";
}

std::string gguf_tokenizer_json(const GgufHeader& header) {
  const std::string key = "tokenizer.ggml.model";
  const std::string_view model = header.text(key).value_or("");
  const std::vector<std::string_view> tokens = tokens_of(header);
  if (model == "gpt2") return byte_level_json(header, tokens);
  if (model == "llama") return sentence_piece_json(header, tokens);
  header.fail(key, "gpt2, llama");
}

}  // namespace fasa
