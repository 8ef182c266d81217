#include "runtime/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa::text {
namespace {

namespace fs = std::filesystem;
using SourceMap = std::map<std::string, std::pair<std::string, std::string>>;  // file, text by name
using TokenList = std::vector<std::pair<std::string, std::string>>;

SourceMap read_files(const fs::path& dir) {
  SourceMap sources;
  const fs::path whole = dir / "chat_template.jinja";
  if (fs::exists(whole)) sources["default"] = {whole.string(), read_file(whole.string())};
  const fs::path more = dir / "additional_chat_templates";
  if (!fs::is_directory(more)) return sources;
  for (const auto& entry : fs::directory_iterator(more)) {
    if (entry.path().extension() != ".jinja") continue;
    sources[entry.path().stem().string()] = {entry.path().string(),
                                             read_file(entry.path().string())};
  }
  return sources;
}

[[noreturn]] void fail_template(const std::string& file) {
  throw InputError(
      fmt::format("{}: chat_template has the wrong type; allowed: a string, or a list of objects "
                  "with the strings name and template",
                  file));
}

std::string member(const nlohmann::json& object, const char* key, const std::string& file) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) {
    fail_template(file);
  }
  return object[key].get<std::string>();
}

SourceMap read_config(const nlohmann::json& config, const std::string& file) {
  SourceMap sources;
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return sources;
  const std::string place = file + " (chat_template)";
  if (found->is_string()) {
    sources["default"] = {place, found->get<std::string>()};
    return sources;
  }
  if (!found->is_array()) fail_template(file);
  for (const nlohmann::json& entry : *found) {
    const std::string name = member(entry, "name", file);
    sources[name] = {fmt::format("{} (chat_template {})", file, name),
                     member(entry, "template", file)};
  }
  return sources;
}

// A token is a string, or an object whose `content` is the string.
TokenList read_control_tokens(const nlohmann::json& config) {
  TokenList tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    const auto content = found->is_object() ? found->find("content") : found->end();
    if (found->is_string()) {
      tokens.emplace_back(name, found->get<std::string>());
    } else if (found->is_object() && content != found->end() && content->is_string()) {
      tokens.emplace_back(name, content->get<std::string>());
    }
  }
  return tokens;
}

nlohmann::json parse_object(std::string_view text, const std::string& name) {
  nlohmann::json config = parse_json(text, name);
  if (!config.is_object()) {
    throw InputError(fmt::format("{}: the file is not a JSON object", name));
  }
  return config;
}

nlohmann::json read_tokenizer_config(const fs::path& path) {
  if (!fs::exists(path)) return nlohmann::json::object();
  return parse_object(read_file(path.string()), path.string());
}

}  // namespace

std::vector<Segment> ChatPrompt::segments(size_t begin) const {
  std::vector<Segment> segments;
  const std::string_view bytes = text_.bytes();
  for (const jinja::MarkedText::Run& run : text_.runs()) {
    if (run.end <= begin) continue;
    segments.push_back({bytes.substr(begin, run.end - begin),
                        run.origin == jinja::Origin::kUser ? Trust::kUser : Trust::kTrusted});
    begin = run.end;
  }
  return segments;
}

std::optional<ChatTemplates> ChatTemplates::load_if_present(const fs::path& model_dir) {
  const fs::path path = model_dir / "tokenizer_config.json";
  const nlohmann::json config = read_tokenizer_config(path);
  SourceMap sources = read_files(model_dir);
  if (sources.empty()) sources = read_config(config, path.string());
  return make(sources, config);
}

std::optional<ChatTemplates> ChatTemplates::parse(std::string_view config,
                                                  const std::string& name) {
  const nlohmann::json document = parse_object(config, name);
  return make(read_config(document, name), document);
}

std::optional<ChatTemplates> ChatTemplates::make(const Sources& sources,
                                                 const nlohmann::json& config) {
  if (sources.empty()) return std::nullopt;
  ChatTemplates templates;
  for (const auto& [name, source] : sources) {
    templates.templates_.emplace(
        name, Entry{jinja::Template::parse(source.second, source.first), source.second});
  }
  templates.control_tokens_ = read_control_tokens(config);
  if (const auto found = config.find("response_template");
      found != config.end() && found->is_object()) {
    templates.response_template_ = found->dump();
  }
  return templates;
}

ChatTemplates ChatTemplates::load(const fs::path& model_dir) {
  if (!fs::is_directory(model_dir)) {
    throw InputError(fmt::format("{}: no such folder", model_dir.string()));
  }
  auto templates = load_if_present(model_dir);
  if (templates) return *std::move(templates);
  throw InputError(
      fmt::format("{}: no chat template was found: there is no chat_template.jinja, and "
                  "tokenizer_config.json has none; fasa generate continues a text without one",
                  model_dir.string()));
}

const jinja::Template& ChatTemplates::choose(std::string_view name, bool tools) const {
  return entry(name, tools).parsed;
}

const std::string& ChatTemplates::source(std::string_view name, bool tools) const {
  return entry(name, tools).source;
}

const ChatTemplates::Entry& ChatTemplates::entry(std::string_view name, bool tools) const {
  auto found = templates_.end();
  if (!name.empty()) {
    found = templates_.find(name);
  } else {
    if (tools) found = templates_.find("tool_use");
    if (found == templates_.end()) found = templates_.find("default");
    if (found == templates_.end() && templates_.size() == 1) found = templates_.begin();
  }
  if (found != templates_.end()) return found->second;
  std::string names;
  for (const auto& entry : templates_) names += (names.empty() ? "" : ", ") + entry.first;
  throw UsageError(name.empty() ? fmt::format("the model has several chat templates and no "
                                              "default; choose one with --template: {}",
                                              names)
                                : fmt::format("--template = \"{}\": allowed: {}", name, names));
}

void ChatTemplates::add_control_tokens(jinja::Context* context) const {
  for (const auto& [name, token] : control_tokens_) {
    if (context->find(name) == nullptr) {
      context->set(name, jinja::text_value(token, jinja::Origin::kTemplate));
    }
  }
}

ChatPrompt ChatTemplates::render(jinja::Context context, std::string_view name) const {
  add_control_tokens(&context);
  const jinja::Value* tools = context.find("tools");
  return ChatPrompt(choose(name, tools != nullptr && !tools->is_none()).render(context));
}

ChatPrompt ChatTemplates::render(std::span<const ChatMessage> messages, const std::tm& now) const {
  using jinja::Origin;
  using jinja::text_value;
  using jinja::Value;
  const Value role_key = text_value("role", Origin::kTemplate);
  const Value content_key = text_value("content", Origin::kTemplate);
  std::vector<Value> values;
  for (const ChatMessage& message : messages) {
    std::vector<jinja::Dict::Entry> entries = {
        {role_key, text_value(message.role, Origin::kTemplate)},
        {content_key, text_value(message.content, Origin::kUser)}};
    if (!message.reasoning.empty()) {  // by the names that templates have for it
      for (const char* const name : {"reasoning_content", "thinking"}) {
        entries.emplace_back(text_value(name, Origin::kTemplate),
                             text_value(message.reasoning, Origin::kUser));
      }
    }
    values.push_back(Value::Store(std::make_shared<const jinja::Dict>(std::move(entries))));
  }
  jinja::Context context;
  context.now = now;
  context.set("messages", Value::Store(std::make_shared<const jinja::List>(jinja::ListKind::kList,
                                                                           std::move(values))));
  context.set("tools", Value::none());
  context.set("documents", Value::none());
  context.set("add_generation_prompt", Value::of(true));
  return render(std::move(context));
}

}  // namespace fasa::text
