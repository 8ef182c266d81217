// The tools of a request, and whether the model must call one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {

// A function as the model sees it. A custom tool is one with a text, `input`.
struct Tool {
  std::string name;      // as the model knows it
  Json parameters;       // JSON Schema; null: none
  bool strict = false;   // every keyword of it must be enforced
  bool custom = false;   // see custom_input()
  std::string own_name;  // the client's
  std::string name_space = {};
};

enum class ToolChoice { kNone, kAuto, kRequired };

struct ToolFields {
  Json list = Json::array();  // as chat templates expect it
  std::vector<Tool> tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::vector<std::string> allowed;  // the only tools that may be called; empty: any
  bool parallel = true;              // several calls in one answer
  std::vector<std::string> skipped;  // types of tools that other servers run themselves

  bool used() const { return !tools.empty() && choice != ToolChoice::kNone; }
  bool may_call(const Tool& tool) const {
    return allowed.empty() || std::find(allowed.begin(), allowed.end(), tool.name) != allowed.end();
  }
};

// Chat completions' "tools" ({"type": "function", "function": {...}}), "tool_choice" and
// "parallel_tool_calls". `flat`: those of /v1/responses ({"type": "function", "name": ...}).
// `more`: further tools. Throws ApiError.
ToolFields read_tools(const RequestFields& fields, bool flat, const Json& more = Json::array());

// Null: the answer called no tool of the request.
const Tool* find_tool(const std::vector<Tool>& tools, const std::string& name);
// The name that the model knows.
std::string shown_tool_name(const std::string& name_space, const std::string& name);
// The text of a call of a custom tool; of a call that was cut off, its arguments as they are.
std::string custom_input(const std::string& arguments);

}  // namespace fasa::serve
