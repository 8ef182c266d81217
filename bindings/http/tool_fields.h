// The tools of a request, and whether the model must call one.
#pragma once

#include <string>
#include <vector>

#include "bindings/http/request_fields.h"

namespace fasa::serve {

struct Tool {
  std::string name;
  Json parameters;  // JSON Schema; null: none
};

enum class ToolChoice { kNone, kAuto, kRequired };

struct ToolFields {
  Json list = Json::array();  // as chat templates expect it
  std::vector<Tool> tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::string named;     // the only tool that may be called; "": any
  bool parallel = true;  // several calls in one answer

  bool used() const { return !tools.empty() && choice != ToolChoice::kNone; }
};

// Chat completions' "tools" ({"type": "function", "function": {...}}), "tool_choice" and
// "parallel_tool_calls". `flat`: those of /v1/responses ({"type": "function", "name": ...}). Throws
// ApiError.
ToolFields read_tools(const RequestFields& fields, bool flat);

}  // namespace fasa::serve
