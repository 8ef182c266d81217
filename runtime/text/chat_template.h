// A model's chat templates, and the prompts rendered from them.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
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
  // Input for Tokenizer::encode, from the byte `begin` on. Valid while the prompt exists.
  std::vector<Segment> segments(size_t begin = 0) const;

 private:
  jinja::MarkedText text_;
};

struct ChatMessage {
  std::string role;  // trusted, as the template's own text
  std::string content;
  std::string reasoning = {};  // of an answer
};

// Immutable and thread-safe.
class ChatTemplates {
 public:
  // Reads chat_template.jinja and additional_chat_templates/NAME.jinja; if there are none,
  // chat_template of tokenizer_config.json: a string, or a list of {name, template}. Control tokens
  // (bos_token etc.) come from tokenizer_config.json. Throws InputError naming the file (no
  // template, not JSON, or a wrong value), TemplateError for an invalid template.
  static ChatTemplates load(const std::filesystem::path& model_dir);
  // nullopt if the folder has no template.
  static std::optional<ChatTemplates> load_if_present(const std::filesystem::path& model_dir);
  // Reads the text of a tokenizer_config.json; errors name `name`.
  static std::optional<ChatTemplates> parse(std::string_view config, const std::string& name);

  // The template of this name. For "": `tool_use` if `tools` and there is one, else `default`, else
  // the only one. Throws UsageError listing the available names.
  const jinja::Template& choose(std::string_view name, bool tools) const;
  // The source of the template that choose() returns.
  const std::string& source(std::string_view name, bool tools) const;
  // "response_template" of tokenizer_config.json, which describes answers: its JSON; "": none.
  const std::string& response_template() const { return response_template_; }
  // Adds the file's control tokens that the context does not define.
  void add_control_tokens(jinja::Context* context) const;

  // Renders a complete context, to which control tokens are added. Throws TemplateError.
  ChatPrompt render(jinja::Context context, std::string_view name = "") const;
  // The prompt for an answer to messages, as transformers' apply_chat_template with
  // add_generation_prompt makes it. Contents count as user text. `now`: the time that strftime_now
  // prints.
  ChatPrompt render(std::span<const ChatMessage> messages, const std::tm& now) const;

 private:
  using Sources = std::map<std::string, std::pair<std::string, std::string>>;  // file, text by name
  using ControlTokens = std::vector<std::pair<std::string, std::string>>;
  static std::optional<ChatTemplates> make(const Sources& sources, const nlohmann::json& config);

  struct Entry {
    jinja::Template parsed;
    std::string source;
  };
  const Entry& entry(std::string_view name, bool tools) const;

  std::map<std::string, Entry, std::less<>> templates_;
  ControlTokens control_tokens_;
  std::string response_template_;
};

}  // namespace fasa::text
