#include "runtime/llm/tokenizer.h"

#include <filesystem>
#include <map>

#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

std::string utf8(int code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

// How ByteLevel vocabularies (GPT-2's) write each byte: printable Latin-1 as itself, the others in
// order as the code points from 256 on.
std::map<std::string, int> byte_texts() {
  std::map<std::string, int> texts;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    texts[utf8(printable ? byte : next++)] = byte;
  }
  return texts;
}

bool is_byte_level_bpe(const nlohmann::json& document) {
  if (!document.is_object() || !document.contains("model")) return false;
  const auto& model = document["model"];
  if (!model.is_object() || model.value("type", "BPE") != "BPE") return false;
  if (!model.contains("vocab") || !model["vocab"].is_object()) return false;
  if (model.contains("merges") && !model["merges"].empty()) return false;
  // A normaliser would change bytes, added tokens would match texts.
  if (document.contains("normalizer") && !document["normalizer"].is_null()) return false;
  return !document.contains("added_tokens") || document["added_tokens"].empty();
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::string& dir) {
  const std::string path = dir + "/tokenizer.json";
  if (!std::filesystem::exists(path)) return nullptr;
  return parse(read_text_file(path), path);
}

std::unique_ptr<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  try {
    if (!is_byte_level_bpe(document)) return nullptr;
  } catch (const nlohmann::json::type_error&) {
    return nullptr;  // "type" is no text
  }
  const auto& vocab = document["model"]["vocab"];
  const std::map<std::string, int> bytes = byte_texts();
  if (vocab.size() != bytes.size()) return nullptr;
  auto tokenizer = std::make_unique<Tokenizer>();
  for (const auto& [text, id] : vocab.items()) {
    const auto byte = bytes.find(text);
    constexpr int64_t kMaxId = 1 << 24;
    if (byte == bytes.end() || !id.is_number_integer()) return nullptr;
    const auto value = id.get<int64_t>();
    if (value < 0 || value > kMaxId) return nullptr;
    const auto index = static_cast<size_t>(value);
    if (tokenizer->byte_of_id_.size() <= index) tokenizer->byte_of_id_.resize(index + 1, -1);
    tokenizer->byte_of_id_[index] = static_cast<int16_t>(byte->second);
    tokenizer->id_of_byte_[static_cast<size_t>(byte->second)] = static_cast<int32_t>(value);
  }
  return tokenizer;
}

std::vector<int32_t> Tokenizer::encode(std::string_view bytes) const {
  std::vector<int32_t> ids;
  ids.reserve(bytes.size());
  for (const char byte : bytes) ids.push_back(id_of_byte_[static_cast<unsigned char>(byte)]);
  return ids;
}

std::string Tokenizer::decode(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= byte_of_id_.size()) return "";
  const int16_t byte = byte_of_id_[static_cast<size_t>(id)];
  return byte < 0 ? "" : std::string(1, static_cast<char>(byte));
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += decode(id);
  return bytes;
}

}  // namespace fasa
