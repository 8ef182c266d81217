#include "bindings/http/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr size_t kMaxTools = 128;
constexpr size_t kMaxName = 64;

bool is_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), fits);
}

void require_function(const RequestFields& fields) {
  const std::string type = fields.string("type").value_or("");
  if (type == "function") return;
  throw ApiError(
      400, "invalid_request_error",
      fmt::format("{}: \"{}\"; allowed: \"function\", because this server has no built-in tools",
                  fields.path_of("type"), type.substr(0, 40)),
      fields.path_of("type"), "unsupported_value");
}

// `function`: {"name", "description", "parameters", ...}.
Tool read_function(const RequestFields& function) {
  Tool tool{.name = function.string("name").value_or(""),
            .parameters = nullptr,
            .strict = function.boolean("strict").value_or(false)};
  if (!is_name(tool.name)) {
    throw ApiError::bad_field(function.path_of("name"),
                              fmt::format("\"{}\"; allowed: 1 to {} letters, digits, _, - and .",
                                          tool.name.substr(0, 40), kMaxName));
  }
  function.string("description");
  if (const auto parameters = function.object("parameters")) tool.parameters = parameters->json();
  return tool;
}

const Json* find_list(const RequestFields& fields) {
  const Json* const list = fields.find("tools");
  if (list == nullptr) return nullptr;
  if (!list->is_array() || list->size() > kMaxTools) {
    throw ApiError::bad_field(
        "tools", fmt::format("{}; allowed: a list of at most {} tools",
                             list->is_array() ? fmt::format("a list of {} items", list->size())
                                              : kind_of(*list),
                             kMaxTools));
  }
  return list;
}

void add_tool(ToolFields& tools, Tool tool, const std::string& path) {
  for (const Tool& other : tools.tools) {
    if (other.name == tool.name) {
      throw ApiError::bad_field(
          path,
          fmt::format("the name \"{}\" occurs twice; give each tool its own name", tool.name));
    }
  }
  tools.tools.push_back(std::move(tool));
}

[[noreturn]] void refuse_choice(const Json& choice) {
  throw ApiError::bad_field("tool_choice",
                            kind_of(choice) +
                                "; allowed: \"none\", \"auto\", \"required\", \"any\", or an "
                                "object that names functions of tools");
}

void allow(ToolFields& tools, const std::string& name) {
  const bool there = std::any_of(tools.tools.begin(), tools.tools.end(),
                                 [&](const Tool& tool) { return tool.name == name; });
  if (!there) {
    throw ApiError::bad_field(
        "tool_choice", fmt::format("\"{}\" is not among the request's tools", name.substr(0, 80)));
  }
  tools.allowed.push_back(name);
}

// `flat`: an object names the function directly, without "function" around the name.
void allow_named(const RequestFields& object, bool flat, ToolFields& tools) {
  require_function(object);
  const auto inner = flat ? std::optional(object) : object.object("function");
  if (!inner) refuse_choice(object.json());
  allow(tools, inner->string("name").value_or(""));
}

void read_mode(const Json& mode, ToolFields& tools) {
  if (mode == "none") {
    tools.choice = ToolChoice::kNone;
  } else if (mode == "required" || mode == "any") {  // Mistral's and Anthropic's word
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
}

void read_choice(const RequestFields& fields, bool flat, ToolFields& tools) {
  tools.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const Json* const choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_object()) return read_mode(*choice, tools);
  const RequestFields object(*choice, "tool_choice");
  if (object.string("type") == "allowed_tools") return read_allowed(object, flat, tools);
  allow_named(object, flat, tools);
  tools.choice = ToolChoice::kRequired;
}

}  // namespace

ToolFields read_tools(const RequestFields& fields, bool flat) {
  ToolFields tools;
  const Json* const list = find_list(fields);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const RequestFields entry((*list)[i], fmt::format("tools[{}]", i));
    require_function(entry);
    const auto function = flat ? std::optional(entry) : entry.object("function");
    if (!function) {
      throw ApiError::bad_field(entry.path_of("function"), "missing; allowed: an object");
    }
    add_tool(tools, read_function(*function), function->path_of("name"));
    Json whole = entry.json();
    if (flat) {
      whole.erase("type");
      whole = {{"type", "function"}, {"function", std::move(whole)}};
    }
    tools.list.push_back(std::move(whole));
  }
  read_choice(fields, flat, tools);
  return tools;
}

}  // namespace fasa::serve
