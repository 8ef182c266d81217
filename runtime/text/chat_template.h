// The chat templates of a model's folder, and the prompts that they make of messages.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/template/template.h"
#include "runtime/text/tokenizer.h"

namespace fasa::text {

// A prompt that owns its text.
class ChatPrompt {
 public:
  explicit ChatPrompt(jinja::MarkedText text) : text_(std::move(text)) {}
  const std::string& text() const { return text_.bytes(); }
  // What Tokenizer::encode takes, from the byte `begin` on. Valid as long as the prompt is.
  std::vector<Segment> segments(size_t begin = 0) const;

 private:
  jinja::MarkedText text_;
};

struct ChatMessage {
  std::string role;  // of the program: trusted, as the template's own words
  std::string content;
};

// Immutable: any number of threads may use one at a time.
class ChatTemplates {
 public:
  // Reads chat_template.jinja and additional_chat_templates/NAME.jinja or, where there are none,
  // chat_template of tokenizer_config.json: a text, or a list of {name, template}. Control tokens
  // (bos_token and its like) are tokenizer_config.json's. Throws InputError naming the file: none
  // has a template, not JSON, not what it should be; TemplateError for a template.
  static ChatTemplates load(const std::filesystem::path& model_dir);
  // Nothing where the folder has no template.
  static std::optional<ChatTemplates> load_if_present(const std::filesystem::path& model_dir);
  // The same of the text of a tokenizer_config.json; errors name `name`.
  static std::optional<ChatTemplates> parse(std::string_view config, const std::string& name);

  // The one of this name; "": `tool_use` where there are tools and one of this name, else
  // `default`, else the only one. Throws UsageError naming those that there are.
  const jinja::Template& choose(std::string_view name, bool tools) const;
  // The text of the template that choose() gives.
  const std::string& source(std::string_view name, bool tools) const;
  // The file's control tokens, where the context has none of the same name.
  void add_control_tokens(jinja::Context* context) const;

  // The prompt of a context that was given whole: control tokens are added. Throws TemplateError.
  ChatPrompt render(jinja::Context context, std::string_view name = "") const;
  // The prompt for an answer to messages, as transformers' apply_chat_template makes it with
  // add_generation_prompt. Contents are a user's. `now`: what strftime_now shows.
  ChatPrompt render(std::span<const ChatMessage> messages, const std::tm& now) const;

 private:
  using Sources = std::map<std::string, std::pair<std::string, std::string>>;  // file, text by name
  using ControlTokens = std::vector<std::pair<std::string, std::string>>;
  static std::optional<ChatTemplates> make(const Sources& sources, ControlTokens tokens);

  struct Entry {
    jinja::Template parsed;
    std::string source;
  };
  const Entry& entry(std::string_view name, bool tools) const;

  std::map<std::string, Entry, std::less<>> templates_;
  ControlTokens control_tokens_;
};

}  // namespace fasa::text
