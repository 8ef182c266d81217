// The tools of a request, and whether the model must call one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/http/request_fields.h"

namespace fasa::serve {

struct Tool {
  std::string name;
  Json parameters;      // JSON Schema; null: none
  bool strict = false;  // every keyword of it must be enforced
};

enum class ToolChoice { kNone, kAuto, kRequired };

struct ToolFields {
  Json list = Json::array();  // as chat templates expect it
  std::vector<Tool> tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::vector<std::string> allowed;  // the only tools that may be called; empty: any
  bool parallel = true;              // several calls in one answer

  bool used() const { return !tools.empty() && choice != ToolChoice::kNone; }
  bool may_call(const Tool& tool) const {
    return allowed.empty() || std::find(allowed.begin(), allowed.end(), tool.name) != allowed.end();
  }
};

// Chat completions' "tools" ({"type": "function", "function": {...}}), "tool_choice" and
// "parallel_tool_calls". `flat`: those of /v1/responses ({"type": "function", "name": ...}). Throws
// ApiError.
ToolFields read_tools(const RequestFields& fields, bool flat);

}  // namespace fasa::serve
