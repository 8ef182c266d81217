#include "bindings/http/api/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxName = 128;

bool is_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), fits);
}

enum class ToolType { kFunction, kCustom, kNamespace, kHosted };

ToolType type_of(const RequestFields& tool) {
  const std::string type = tool.string("type").value_or("function");
  if (type == "function") return ToolType::kFunction;
  if (type == "custom") return ToolType::kCustom;
  return type == "namespace" ? ToolType::kNamespace : ToolType::kHosted;
}

// A custom tool's description, with the grammar of its text.
std::string custom_description(const RequestFields& custom) {
  std::string text = custom.string("description").value_or("");
  const auto outer = custom.object("format");
  const bool nested = outer && outer->find("grammar") != nullptr;
  const auto format = nested ? outer->object("grammar") : outer;
  const auto definition = format ? format->string("definition") : std::nullopt;
  if (!definition) return text;
  return fmt::format("{}{}The input follows this {} grammar:\n{}", text, text.empty() ? "" : "\n\n",
                     format->string("syntax").value_or("lark"), *definition);
}

class ToolReader {
 public:
  explicit ToolReader(bool flat) : flat_(flat) {}

  void add(const Json& json, const std::string& path, const std::string& name_space) {
    const RequestFields entry(json, path);
    const ToolType type = type_of(entry);
    if (type == ToolType::kHosted) {
      tools_.skipped.push_back(entry.string("type").value_or(""));
    } else if (type == ToolType::kNamespace) {
      add_all(entry, entry.string("name").value_or(""));
    } else {
      const bool custom = type == ToolType::kCustom;
      const char* const inner = custom ? "custom" : "function";
      const auto function = flat_ || (custom && entry.find(inner) == nullptr) ? std::optional(entry)
                                                                              : entry.object(inner);
      if (!function) throw ApiError::bad_field(entry.path_of(inner), "missing; allowed: an object");
      add_function(*function, custom, name_space);
    }
  }
  ToolFields take() { return std::move(tools_); }

 private:
  void add_all(const RequestFields& entry, const std::string& name_space) {
    const Json* const list = entry.find("tools");
    for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
      add((*list)[i], fmt::format("{}[{}]", entry.path_of("tools"), i), name_space);
    }
  }
  // `function`: {"name", "description", "parameters", ...}.
  void add_function(const RequestFields& function, bool custom, const std::string& name_space) {
    const std::string path = function.path_of("name");
    Tool tool{.name = "",
              .parameters = nullptr,
              .strict = function.boolean("strict").value_or(false),
              .custom = custom,
              .own_name = function.string("name").value_or(""),
              .name_space = name_space};
    tool.name = shown_tool_name(name_space, tool.own_name);
    if (!is_name(tool.name)) {
      throw ApiError::bad_field(path, fmt::format("\"{}\"; allowed: 1 to {} letters, digits, _, -, "
                                                  "., : and /",
                                                  tool.name.substr(0, 40), kMaxName));
    }
    if (find_tool(tools_.tools, tool.name) != nullptr) {
      throw ApiError::bad_field(
          path,
          fmt::format("the name \"{}\" occurs twice; give each tool its own name", tool.name));
    }
    if (tools_.tools.size() == kMaxTools) {
      throw ApiError::bad_field("tools", fmt::format("more than {} tools; give fewer", kMaxTools));
    }
    tools_.list.push_back({{"type", "function"}, {"function", shown(function, &tool)}});
    tools_.tools.push_back(std::move(tool));
  }
  // The function for the template.
  static Json shown(const RequestFields& function, Tool* tool) {
    if (tool->custom) {
      tool->parameters = {{"type", "object"},
                          {"properties", {{"input", {{"type", "string"}}}}},
                          {"required", {"input"}},
                          {"additionalProperties", false}};
      return {{"name", tool->name},
              {"description", custom_description(function)},
              {"parameters", tool->parameters}};
    }
    function.string("description");
    if (const auto schema = function.object("parameters")) tool->parameters = schema->json();
    Json shown = {{"name", tool->name}};
    for (const auto& [name, value] : function.json().items()) {
      const bool own = name == "name" || name == "type" || name == "defer_loading";
      if (!own && !value.is_null()) shown[name] = value;
    }
    return shown;
  }

  const bool flat_;
  ToolFields tools_;
};

const Json* find_list(const RequestFields& fields) {
  const Json* const list = fields.find("tools");
  if (list == nullptr) return nullptr;
  if (!list->is_array()) {
    throw ApiError::bad_field("tools", kind_of(*list) + "; allowed: a list of tools");
  }
  return list;
}

[[noreturn]] void refuse_choice(const Json& choice) {
  throw ApiError::bad_field("tool_choice",
                            kind_of(choice) +
                                "; allowed: \"none\", \"auto\", \"required\", \"any\", or an "
                                "object that names functions of tools");
}

void allow(ToolFields& tools, const std::string& name) {
  const auto called = std::find_if(tools.tools.begin(), tools.tools.end(), [&](const Tool& tool) {
    return tool.name == name || tool.own_name == name;
  });
  if (called != tools.tools.end()) return tools.allowed.push_back(called->name);
  if (!tools.skipped.empty()) return;  // it may be one of them
  throw ApiError::bad_field(
      "tool_choice", fmt::format("\"{}\" is not among the request's tools", name.substr(0, 80)));
}

// `flat`: an object names the function directly, without "function" around the name.
void allow_named(const RequestFields& object, bool flat, ToolFields& tools) {
  const ToolType type = type_of(object);
  if (type == ToolType::kHosted || type == ToolType::kNamespace) return;
  const char* const field = type == ToolType::kCustom ? "custom" : "function";
  const auto inner = flat ? std::optional(object) : object.object(field);
  if (!inner) refuse_choice(object.json());
  const std::string space = inner->string("namespace").value_or("");
  allow(tools, shown_tool_name(space, inner->string("name").value_or("")));
}

void read_mode(const Json& mode, ToolFields& tools) {
  if (mode == "none") {
    tools.choice = ToolChoice::kNone;
  } else if (mode == "required" || mode == "any") {  // Mistral's and Anthropic's word
    if (tools.tools.empty() && !tools.skipped.empty()) return;
    if (tools.tools.empty()) {
      throw ApiError::bad_field("tool_choice",
                                kind_of(mode) + " needs tools; add tools, or use \"none\"");
    }
    tools.choice = ToolChoice::kRequired;
  } else if (mode != "auto") {
    refuse_choice(mode);
  }
}

// {"type": "allowed_tools", "mode", "tools"}; in chat completions mode and tools are in an object.
void read_allowed(const RequestFields& choice, bool flat, ToolFields& tools) {
  const auto inner = choice.object("allowed_tools");
  const RequestFields& object = inner ? *inner : choice;
  const Json* const list = object.find("tools");
  if (list == nullptr || !list->is_array() || list->empty()) {
    throw ApiError::bad_field(object.path_of("tools"), "allowed: a list of tools");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    allow_named(RequestFields((*list)[i], fmt::format("{}[{}]", object.path_of("tools"), i)), flat,
                tools);
  }
  read_mode(object.string("mode").value_or("auto"), tools);
  if (tools.allowed.empty()) tools.choice = ToolChoice::kNone;  // other servers run all of them
}

void read_choice(const RequestFields& fields, bool flat, ToolFields& tools) {
  tools.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const Json* const choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_object()) return read_mode(*choice, tools);
  const RequestFields object(*choice, "tool_choice");
  if (object.string("type") == "allowed_tools") return read_allowed(object, flat, tools);
  allow_named(object, flat, tools);
  if (!tools.allowed.empty()) tools.choice = ToolChoice::kRequired;
}

}  // namespace

ToolFields read_tools(const RequestFields& fields, bool flat, const Json& more) {
  ToolReader reader(flat);
  const Json* const list = find_list(fields);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    reader.add((*list)[i], fmt::format("tools[{}]", i), "");
  }
  for (const Json& tool : more) reader.add(tool, "additional_tools", "");
  ToolFields tools = reader.take();
  read_choice(fields, flat, tools);
  return tools;
}

const Tool* find_tool(const std::vector<Tool>& tools, const std::string& name) {
  const auto found =
      std::find_if(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

std::string shown_tool_name(const std::string& name_space, const std::string& name) {
  if (name_space.empty() || name.starts_with(name_space)) return name;
  return name_space + (name_space.ends_with('_') || name_space.ends_with('.') ? "" : "__") + name;
}

std::string custom_input(const std::string& arguments) {
  const Json parsed = Json::parse(arguments, nullptr, false);
  const bool whole = parsed.is_object() && parsed.contains("input") && parsed["input"].is_string();
  return whole ? parsed["input"].get<std::string>() : arguments;
}

}  // namespace fasa::serve
