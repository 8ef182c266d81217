#include "tools/flags/prompt.h"

#include <fmt/format.h>

#include <charconv>
#include <random>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/require.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/generation/model_tokenizer.h"

namespace fasa {
namespace {

void check_id(int64_t id, size_t index, const std::string& path, int vocab_size) {
  if (id >= 0 && id < vocab_size) return;
  throw InputError(
      fmt::format("{}: token {} (counted from 0) is {}: allowed: token ids of this model, 0 to {}",
                  path, index, id, vocab_size - 1));
}

std::vector<int32_t> ids_from_json(const std::string& text, const std::string& path,
                                   int vocab_size) {
  const nlohmann::json json = parse_json(text, path);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_number_integer()) {
      throw InputError(
          fmt::format("{}: token {} (counted from 0) is {}: allowed: integers", path, i,
                      json[i].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    }
    check_id(json[i].get<int64_t>(), i, path, vocab_size);
    ids.push_back(json[i].get<int32_t>());
  }
  return ids;
}

std::vector<int32_t> ids_from_words(std::string_view text, const std::string& path,
                                    int vocab_size) {
  constexpr std::string_view kBetween = " \t\r\n,";
  std::vector<int32_t> ids;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
    if (text.empty()) return ids;
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    int64_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw InputError(fmt::format("{}: token {} (counted from 0) is \"{}\": allowed: integers",
                                   path, ids.size(), word.substr(0, 40)));
    }
    check_id(id, ids.size(), path, vocab_size);
    ids.push_back(static_cast<int32_t>(id));
    text.remove_prefix(word.size());
  }
}

// A tokenizer may have more ids than the model's embedding has rows.
void check_ids(const std::vector<int32_t>& ids, int vocab_size) {
  for (const int32_t id : ids) {
    if (id < vocab_size) continue;
    throw InputError(
        fmt::format("the tokenizer produces token id {}: allowed: token ids of this model, 0 to "
                    "{}; do the tokenizer and the model belong together?",
                    id, vocab_size - 1));
  }
}

std::vector<int32_t> random_ids(const PromptSource& source, int vocab_size) {
  if (source.text || source.file || source.ids_file) {
    throw UsageError(
        "--random-prompt excludes --prompt, --prompt-file and --prompt-ids; give one of them");
  }
  const int64_t count = *source.random_tokens;
  require(count >= 1 && count <= INT32_MAX / 2, "--random-prompt", count, "1 to 1073741823");
  std::mt19937 random(1);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  return ids;
}

}  // namespace

std::unique_ptr<text::Tokenizer> load_tokenizer(const std::string& model_dir,
                                                const PromptSource& source) {
  try {
    return open_tokenizer(model_dir, source.pre);
  } catch (const InputError& error) {
    if (source.text || source.file) throw;
    log_warning(fmt::format("{}; the text is not printed", error.what()));
    return nullptr;
  }
}

std::string read_prompt_text(const PromptSource& source) {
  return source.text ? *source.text : read_file(*source.file, kPromptFile);
}

std::vector<int32_t> read_ids(const std::string& path, int vocab_size) {
  FileRule rule = kPromptFile;
  rule.what = "file of token ids";
  const std::string text = read_file(path, rule);
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '[' ? ids_from_json(text, path, vocab_size)
                                                          : ids_from_words(text, path, vocab_size);
}

std::vector<int32_t> read_prompt(const PromptSource& source, const text::Tokenizer* tokenizer,
                                 int vocab_size) {
  if (source.random_tokens) return random_ids(source, vocab_size);
  const int given = int{source.text.has_value()} + int{source.file.has_value()} +
                    int{source.ids_file.has_value()};
  if (given != 1) {
    throw UsageError(fmt::format(
        "{} prompts were given; give exactly one of --prompt, --prompt-file, --prompt-ids", given));
  }
  std::vector<int32_t> ids;
  if (source.ids_file) {
    ids = read_ids(*source.ids_file, vocab_size);
  } else {
    const std::string text = read_prompt_text(source);
    if (tokenizer == nullptr) {
      throw UsageError("this model has no tokenizer; give token ids instead (--prompt-ids FILE)");
    }
    ids = tokenizer->encode(text, {.add_special = true});
    check_ids(ids, vocab_size);
  }
  if (ids.empty()) {
    throw UsageError(fmt::format("{}the prompt is empty; give at least one token",
                                 source.file       ? *source.file + ": "
                                 : source.ids_file ? *source.ids_file + ": "
                                                   : ""));
  }
  return ids;
}

}  // namespace fasa
