// fasa tokenize: a text's token ids and pieces, and ids' text, by a model's tokenizer alone.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/prompt.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

class TokenizeCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  void validate() const;
  std::vector<int32_t> encode(std::string_view text) const {
    return tokenizer_->encode(text, {.add_special = add_special_});
  }
  void print_text() const;
  void print_ids() const;
  void print_lines() const;
  std::string line_result(const Json& line, size_t number) const;
  std::vector<int32_t> ids_of(const Json& line, size_t number) const;

  CLI::App* command_ = nullptr;
  std::string model_dir_;
  PromptSource prompt_;
  std::optional<std::string> lines_;
  bool decode_ = false;
  bool skip_special_ = false;
  bool add_special_ = false;
  bool json_ = false;
  std::optional<text::Tokenizer> tokenizer_;
};

CLI::App* TokenizeCommand::add_to(CLI::App& app) {
  command_ = app.add_subcommand("tokenize", "Convert text to token ids, and back");
  add_option(*command_, "--model", model_dir_, "DIR",
             "Folder with tokenizer.json (weights are not needed), or a GGUF file")
      ->required();
  add_option(*command_, "--prompt", prompt_.text, "TEXT", "The text");
  add_option(*command_, "--prompt-file", prompt_.file, "FILE", "File with the text");
  add_option(*command_, "--prompt-ids", prompt_.ids_file, "FILE",
             "With --decode: file of token ids, a JSON array or numbers separated by spaces");
  add_option(*command_, "--lines", lines_, "FILE",
             "File with one JSON string per line; prints one array of ids per line (with "
             "--decode: from arrays to strings)");
  add_pre_option(*command_, prompt_.pre);
  command_->add_flag("--decode", decode_, "Convert ids to text");
  command_->add_flag("--skip-special", skip_special_, "With --decode: skip special tokens");
  command_->add_flag(
      "--add-special", add_special_,
      "Add the special tokens that the tokenizer puts around a text, usually one before it");
  command_->add_flag("--json", json_, "Print one JSON object");
  return command_;
}

void TokenizeCommand::validate() const {
  const int texts = int{prompt_.text.has_value()} + int{prompt_.file.has_value()};
  const int given = texts + int{prompt_.ids_file.has_value()} + int{lines_.has_value()};
  if (given != 1) {
    throw UsageError(
        fmt::format("{} inputs were given; give exactly one of --prompt, --prompt-file, "
                    "--prompt-ids (with --decode), --lines",
                    given));
  }
  if (decode_ && texts != 0) throw UsageError("--decode needs --prompt-ids or --lines");
  if (!decode_ && prompt_.ids_file) throw UsageError("--prompt-ids needs --decode");
  if (!decode_ && skip_special_) throw UsageError("--skip-special needs --decode");
  if (decode_ && add_special_) throw UsageError("--add-special and --decode exclude each other");
  if (lines_ && json_)
    throw UsageError("--lines and --json exclude each other, because --lines already prints JSON");
}

void TokenizeCommand::print_text() const {
  const auto ids = encode(read_prompt_text(prompt_));
  if (json_) {
    Json pieces = Json::array();
    for (const int32_t id : ids) pieces.push_back(tokenizer_->piece(id));
    fmt::print("{}\n", Json{{"ids", ids}, {"pieces", pieces}}.dump(2));
    return;
  }
  for (const int32_t id : ids) fmt::print("{}\t{}\n", id, Json(tokenizer_->piece(id)).dump());
}

void TokenizeCommand::print_ids() const {
  const auto ids = read_ids(*prompt_.ids_file, static_cast<int>(tokenizer_->vocab_size()));
  const std::string decoded = tokenizer_->decode(ids, skip_special_);
  if (json_) {
    fmt::print("{}\n", Json{{"ids", ids}, {"text", decoded}}.dump(2));
  } else {
    std::fwrite(decoded.data(), 1, decoded.size(), stdout);
  }
}

std::vector<int32_t> TokenizeCommand::ids_of(const Json& line, size_t number) const {
  std::vector<int32_t> ids;
  for (const Json& id : line) {
    const bool known = id.is_number_unsigned() &&
                       id.get<uint64_t>() < static_cast<uint64_t>(tokenizer_->vocab_size());
    if (!known) {
      throw InputError(fmt::format("{}:{}: not an array of token ids; allowed: ids from 0 to {}",
                                   *lines_, number, tokenizer_->vocab_size() - 1));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::string TokenizeCommand::line_result(const Json& line, size_t number) const {
  if (decode_ ? line.is_array() : line.is_string()) {
    return decode_ ? Json(tokenizer_->decode(ids_of(line, number), skip_special_)).dump()
                   : Json(encode(line.get_ref<const std::string&>())).dump();
  }
  throw InputError(fmt::format("{}:{}: the line is invalid; allowed: one JSON {} per line", *lines_,
                               number, decode_ ? "array of ids" : "string"));
}

void TokenizeCommand::print_lines() const {
  const std::string bytes = read_file(*lines_, kPromptFile);
  const std::string_view all = bytes;
  size_t number = 1;
  for (size_t at = 0; at < all.size(); ++number) {
    const size_t end = std::min(all.find('\n', at), all.size());
    const Json line = Json::parse(all.substr(at, end - at), nullptr, false);
    fmt::print("{}\n", line_result(line, number));
    at = end + 1;
  }
}

int TokenizeCommand::run() {
  reject_unknown_arguments(*command_);
  validate();
  tokenizer_ = require_tokenizer(model_dir_, prompt_.pre);
  if (lines_) {
    print_lines();
  } else if (decode_) {
    print_ids();
  } else {
    print_text();
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_tokenize_command() { return std::make_unique<TokenizeCommand>(); }

}  // namespace fasa
