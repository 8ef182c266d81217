#include "runtime/text/tokenizer_parts.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/io/json_fields.h"
#include "runtime/text/end_tokens.h"
#include "runtime/text/json_part.h"
#include "runtime/text/tokenizer_file.h"

namespace fasa::text {
namespace {

using nlohmann::json;

// A member of the document, null if it is missing.
const json& member(const json& document, const char* key) {
  static const json none;
  const auto found = document.find(key);
  return found == document.end() ? none : *found;
}

void check_model(const JsonPart& model, const TokenizerFile& file) {
  const std::string type = model.text("type").value_or("BPE");
  if (type != "BPE" || file.has_scored_pieces) {
    throw InputError(fmt::format("{}: \"{}\" is not supported; allowed: BPE", model.name(),
                                 type != "BPE" ? type : "Unigram"));
  }
  if (!file.has_vocabulary) model.fail("vocab", "an object of pieces and their ids");
  if (!file.has_merges) model.fail("merges", "an array");
  if (model.has("dropout") && model.at("dropout") != 0) {
    model.fail("dropout", "null, because dropout makes encodings random");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(key).value_or("").empty()) model.fail(key, "null");
  }
}

// Not in Hugging Face's files: ids of GGUF vocabularies whose text another id has too.
void add_duplicates(const JsonPart& model, Vocabulary* vocabulary) {
  constexpr const char* kKey = "duplicates";
  if (!model.has(kKey)) return;
  for (const json& one : model.array(kKey)) {
    const JsonPart token(one, fmt::format("{}.{}", model.name(), kKey));
    vocabulary->add_duplicate(token.required_text("content"), token.integer("id", 0, kMaxTokenId),
                              token.name());
  }
}

Bpe read_bpe(TokenizerFile& file, const std::string& place) {
  const JsonPart model(member(file.document, "model"), place + ": model");
  check_model(model, file);
  add_duplicates(model, &file.vocabulary);
  file.vocabulary.seal(model.name() + ".vocab");
  MergeTable merges = file.merges.table(file.vocabulary, model.name() + ".merges");
  file.merges = {};
  BpeOptions options{.unk_token = model.text("unk_token").value_or(""),
                     .fuse_unk = model.boolean_or("fuse_unk", false),
                     .byte_fallback = model.boolean_or("byte_fallback", false),
                     .ignore_merges = model.boolean_or("ignore_merges", false)};
  return {std::move(file.vocabulary), std::move(merges), std::move(options), model.name()};
}

// A token of tokenizer_config.json: a string, or an object that contains it.
std::optional<std::string> config_token(const json& config, const char* key) {
  const json& token = member(config, key);
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && member(token, "content").is_string()) {
    return token.at("content").get<std::string>();
  }
  return std::nullopt;
}

// eos_token of tokenizer_config.json.
std::optional<int32_t> named_end(std::string_view text, const TokenizerParts& parts,
                                 const std::string& place) {
  if (text.empty()) return std::nullopt;
  const json config = parse_json(text, place);
  if (!config.is_object()) throw InputError(place + ": not a valid JSON object");
  const auto token = config_token(config, "eos_token");
  return token ? parts.find(*token) : std::nullopt;
}

// Special tokens spelt as an end, and the named one.
std::vector<int32_t> ends_of(const TokenizerParts& parts, std::optional<int32_t> named) {
  std::vector<int32_t> ids;
  if (named) ids.push_back(*named);
  const auto has = [&](std::string_view text) { return parts.find(text).has_value(); };
  for (const std::string_view text : end_spellings()) {
    if (!parts.added.is_special(text) || !ends_answer(text, has)) continue;
    const int32_t id = *parts.find(text);
    if (id != named) ids.push_back(id);
  }
  return ids;
}

void check_surroundings(const TokenizerParts& parts, const std::string& place) {
  for (const auto* ids : {&parts.around.prefix, &parts.around.suffix}) {
    for (const int32_t id : *ids) {
      if (parts.spelling(id)) continue;
      throw InputError(
          fmt::format("{}: post_processor inserts id {}; allowed: ids of tokens", place, id));
    }
  }
}

}  // namespace

std::optional<std::string_view> TokenizerParts::spelling(int32_t id) const {
  if (const AddedToken* token = added.find(id)) return token->decoded();
  if (!bpe.vocabulary().has(id)) return std::nullopt;
  return bpe.vocabulary().piece(id);
}

std::optional<int32_t> TokenizerParts::find(std::string_view piece) const {
  if (const AddedToken* token = added.find(piece)) return token->id;
  return bpe.vocabulary().find(piece);
}

TokenizerParts read_parts(std::string_view text, std::string_view config, const std::string& name) {
  const std::string place = name + "/tokenizer.json";
  TokenizerFile file = read_tokenizer_file(text, place);
  const JsonPart document(file.document, place);
  const std::string version = document.text("version").value_or("1.0");
  if (version != "1.0") {
    throw InputError(fmt::format("{}: version is \"{}\"; allowed: \"1.0\"", place, version));
  }
  const auto part = [&](const char* key) -> const json& { return member(file.document, key); };
  NormalizerChain normalizer(part("normalizer"), place + ": normalizer");
  PreTokenizerChain pre_tokenizer(part("pre_tokenizer"), place + ": pre_tokenizer");
  Surroundings around = read_post_processor(part("post_processor"), place + ": post_processor");
  DecoderChain decoder(part("decoder"), place + ": decoder");
  Bpe bpe = read_bpe(file, place);
  AddedTokens added(part("added_tokens"), bpe.vocabulary(), normalizer, place + ": added_tokens");
  TokenizerParts parts{std::move(normalizer),
                       std::move(pre_tokenizer),
                       std::move(bpe),
                       std::move(added),
                       std::move(around),
                       std::move(decoder),
                       {}};
  check_surroundings(parts, place);
  parts.ends = ends_of(parts, named_end(config, parts, name + "/tokenizer_config.json"));
  return parts;
}

}  // namespace fasa::text
