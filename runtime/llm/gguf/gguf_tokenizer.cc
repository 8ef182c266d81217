#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/llm/gguf/gguf_pre_tokenizer.h"
#include "runtime/llm/gguf/gguf_texts.h"
#include "runtime/llm/gguf/gguf_vocabulary.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

// Maximum bytes of a piece whose splits are tried; SentencePiece's own pieces have a few dozen.
constexpr size_t kMaxSplitBytes = 256;
constexpr size_t kMaxDuplicates = size_t{1} << 16;
constexpr const char* kBlank = "\u2581";

using Type = GgufTokenType;

// As a quoted JSON string. Throws InputError for invalid UTF-8.
std::string quoted(std::string_view text, const GgufHeader& header) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw InputError(
        fmt::format("{}: tokenizer.ggml.tokens or merges are not valid UTF-8", header.name()));
  }
}

// Tokens by text; the first id where several have the same.
using Ids = std::unordered_map<std::string_view, size_t>;

struct Merge {
  std::string_view left;
  std::string_view right;
  double score;
};

// SentencePiece stores scores, not merges: merges are all splits of a piece into two pieces, best
// score first.
std::vector<Merge> merges_by_score(const std::vector<std::string_view>& tokens,
                                   const Ids& vocabulary, const std::vector<double>& scores) {
  std::vector<Merge> merges;
  std::vector<Merge> of_piece;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view piece = tokens[id];
    if (piece.size() > kMaxSplitBytes || vocabulary.at(piece) != id) continue;
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

// The parts of a tokenizer.json. The text is written in pieces: one JSON document would take ten
// times the memory.
class Writer {
 public:
  Writer(const GgufHeader& header, const GgufVocabulary& vocabulary)
      : header_(header), vocabulary_(vocabulary) {
    ids_.reserve(vocabulary.size());
    for (size_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view text = vocabulary.texts()[id];
      if (ids_.emplace(text, id).second) continue;
      if (duplicates_.size() == kMaxDuplicates) {
        header.fail("tokenizer.ggml.tokens",
                    fmt::format("{} tokens with the text of another", kMaxDuplicates));
      }
      duplicates_.push_back({{"id", id}, {"content", quotable(text)}});
    }
    member("version", "1.0");
  }

  const Ids& ids() const { return ids_; }
  void member(std::string_view key, const Json& value) { raw(key, value.dump()); }
  void add_tokens();
  // `model`: all its members but the vocabulary and merges.
  void add_model(Json model, const std::vector<Merge>& merges);
  std::string finish() { return std::move(text_) + "}"; }

 private:
  void raw(std::string_view key, const std::string& text) {
    text_ += text_.empty() ? '{' : ',';
    text_ += fmt::format("\"{}\":{}", key, text);
  }
  std::string quotable(std::string_view text) const {
    quoted(text, header_);  // throws for invalid UTF-8
    return std::string(text);
  }

  const GgufHeader& header_;
  const GgufVocabulary& vocabulary_;
  Ids ids_;
  Json duplicates_ = Json::array();
  std::string text_;
};

// In Phi-3's tokenizers most special tokens take the white space behind them; files do not say so.
bool is_phi3(const GgufHeader& header) {
  if (header.text("tokenizer.ggml.model") != "llama") return false;
  std::string name(header.text("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return header.text("general.architecture") == "phi3" || name.find("phi-3") != name.npos ||
         name.find("phi3") != name.npos;
}

void Writer::add_tokens() {
  std::string text = "[";
  const bool phi3 = is_phi3(header_);
  for (size_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view content = vocabulary_.texts()[id];
    const Type type = vocabulary_.type(id);
    if (type == Type::kNormal || ids_.at(content) != id) continue;
    const bool strips =
        phi3 && content != "<unk>" && content != "<s>" && content != "<|endoftext|>";
    text +=
        fmt::format(R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":{},)"
                    R"("normalized":false,"special":{}}})",
                    text.size() > 1 ? "," : "", id, quoted(content, header_), strips,
                    type != Type::kUserDefined);
  }
  raw("added_tokens", text + "]");
}

void Writer::add_model(Json model, const std::vector<Merge>& merges) {
  if (!duplicates_.empty()) model["duplicates"] = std::move(duplicates_);
  std::string text = model.dump();
  text.back() = ',';
  text += "\"vocab\":{";
  bool first = true;
  for (size_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view token = vocabulary_.texts()[id];
    if (ids_.at(token) != id) continue;
    text += fmt::format("{}{}:{}", first ? "" : ",", quoted(token, header_), id);
    first = false;
  }
  text += "},\"merges\":[";
  first = true;
  for (const Merge& merge : merges) {
    text += fmt::format("{}[{},{}]", first ? "" : ",", quoted(merge.left, header_),
                        quoted(merge.right, header_));
    first = false;
  }
  raw("model", text + "]}");
}

// Null if no tokens are added around a text.
Json post_processor(const GgufHeader& header, const GgufVocabulary& vocabulary,
                    bool adds_beginning) {
  Json single = Json::array();
  Json special = Json::object();
  const auto add = [&](const char* kind) {
    const auto id = vocabulary.named(kind);
    if (!id) return;
    const std::string text(vocabulary.texts()[*id]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  if (adds_beginning) add("bos");
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

Json bpe_model(bool ignore_merges, bool byte_fallback, const Json& unknown) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", !unknown.is_null()},
          {"byte_fallback", byte_fallback},
          {"ignore_merges", ignore_merges}};
}

const GgufPreTokenizer& pre_tokenizer_of(const GgufHeader& header, std::string_view given) {
  const std::string key = "tokenizer.ggml.pre";
  const std::string_view named = header.text(key).value_or(kUnnamedPreTokenizer);
  const GgufPreTokenizer* found = find_gguf_pre_tokenizer(given.empty() ? named : given);
  if (found == nullptr && !given.empty()) {
    throw UsageError(fmt::format("--pre {}: not a pre-tokenizer's name; allowed: {}", given,
                                 gguf_pre_tokenizer_names()));
  }
  if (found == nullptr) {
    throw InputError(
        fmt::format("{}: key {} is {}; allowed: {}; --pre NAME takes another than the file's",
                    header.name(), key, quoted(named, header), gguf_pre_tokenizer_names()));
  }
  if (given.empty() && named == kUnnamedPreTokenizer) {
    log_warning_once(fmt::format(
        "{}: key {} {}, so texts may be split otherwise than the model was trained on, and its "
        "answers be worse; name the model's own with --pre NAME (llama-bpe for Llama 3, qwen2 for "
        "Qwen2; {})",
        header.name(), key, header.has(key) ? "is \"default\"" : "is missing",
        gguf_pre_tokenizer_names()));
  }
  return *found;
}

Json byte_level_decoder() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", true},
          {"trim_offsets", true},
          {"use_regex", true}};
}

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

// Text of the token for unknown characters; null if there is none.
Json unknown_token(const GgufVocabulary& vocabulary) {
  const auto id = vocabulary.named("unknown");
  return id ? Json(std::string(vocabulary.texts()[*id])) : Json();
}

std::string merged_json(const GgufHeader& header, const GgufVocabulary& vocabulary,
                        const GgufPreTokenizer& pre) {
  Writer writer(header, vocabulary);
  const bool adds_beginning =
      pre.has_beginning && (!pre.byte_level ||  // files of Gemma 4 that say otherwise are wrong
                            header.boolean_or("tokenizer.ggml.add_bos_token", pre.adds_beginning));
  writer.add_tokens();
  writer.member("normalizer", pre.normalizer());
  writer.member("pre_tokenizer", pre.pre_tokenizer());
  writer.member("post_processor", post_processor(header, vocabulary, adds_beginning));
  writer.member("decoder", pre.byte_level ? byte_level_decoder() : blank_decoder(false));
  const Json unknown = pre.byte_level ? Json() : unknown_token(vocabulary);
  writer.add_model(bpe_model(pre.ignore_merges, !pre.byte_level, unknown),
                   merges_as_written(header));
  return writer.finish();
}

std::string sentence_piece_json(const GgufHeader& header, const GgufVocabulary& vocabulary) {
  const std::vector<double> scores = header.numbers("tokenizer.ggml.scores");
  if (scores.size() != vocabulary.size()) {
    header.fail("tokenizer.ggml.scores", "one value per token");
  }
  const bool prefix = header.boolean_or("tokenizer.ggml.add_space_prefix", true);
  const bool adds_beginning = header.boolean_or("tokenizer.ggml.add_bos_token", true);
  Writer writer(header, vocabulary);
  writer.add_tokens();
  writer.member("normalizer", blank_normalizer(prefix));
  writer.member("pre_tokenizer", nullptr);
  writer.member("post_processor", post_processor(header, vocabulary, adds_beginning));
  writer.member("decoder", blank_decoder(prefix));
  writer.add_model(bpe_model(false, true, unknown_token(vocabulary)),
                   merges_by_score(vocabulary.texts(), writer.ids(), scores));
  return writer.finish();
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
  const GgufVocabulary vocabulary(header);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::pair<const char*, const char*> kinds[] = {{"bos", "bos_token"},
                                                       {"eos", "eos_token"},
                                                       {"unknown", "unk_token"},
                                                       {"padding", "pad_token"}};
  for (const auto& [kind, key] : kinds) {
    if (const auto id = vocabulary.named(kind)) config[key] = std::string(vocabulary.texts()[*id]);
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
  return model && *model != "no_vocab" && *model != "none";
}

std::string gguf_tokenizer_json(const GgufHeader& header, std::string_view pre) {
  const std::string key = "tokenizer.ggml.model";
  const std::string_view model = header.text(key).value_or("");
  if (!pre.empty() && model != "gpt2") {
    throw UsageError(
        fmt::format("--pre {}: allowed for byte-level vocabularies ({} = \"gpt2\"); {} has {}", pre,
                    key, header.name(), quoted(model, header)));
  }
  const GgufVocabulary vocabulary(header);
  vocabulary.warn_of_bad_ids();
  if (model == "llama") return sentence_piece_json(header, vocabulary);
  if (model == "gemma4") return merged_json(header, vocabulary, *find_gguf_pre_tokenizer(model));
  if (model == "gpt2") return merged_json(header, vocabulary, pre_tokenizer_of(header, pre));
  throw InputError(fmt::format("{}: key {} is {}; allowed: gpt2, llama, gemma4", header.name(), key,
                               quoted(model, header)));
}

std::vector<int64_t> gguf_ends(const GgufHeader& header) {
  if (header.has("tokenizer.ggml.tokens")) return GgufVocabulary(header).ends();
  std::vector<int64_t> ids;
  for (const char* kind : {"eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", kind);
    if (header.has(key)) ids.push_back(header.integer(key, -1, INT32_MAX));
  }
  return ids;
}

}  // namespace fasa
