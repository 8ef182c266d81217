#include "bindings/http/thinking_fields.h"

#include <string>
#include <utility>

namespace fasa::serve {
namespace {

// Templates know low, medium and high.
std::string known_effort(const std::string& effort) {
  if (effort == "minimal") return "low";
  return effort == "max" || effort == "xhigh" ? "high" : effort;
}

void set(Json& context, const char* name, Json value) {
  if (!context.contains(name)) context[name] = std::move(value);
}

}  // namespace

void set_thinking(Json& context, const Json& effort) {
  bool thinks = true;
  if (effort.is_boolean()) {
    thinks = effort.get<bool>();
  } else if (effort.is_string() && !effort.get<std::string>().empty()) {
    thinks = effort != "none" && effort != "disabled";
    set(context, "reasoning_effort", thinks ? known_effort(effort.get<std::string>()) : "none");
  } else {
    return;
  }
  for (const char* const name : {"enable_thinking", "thinking"}) set(context, name, thinks);
}

void set_template_variables(Json& context, const RequestFields& fields) {
  const auto extra = fields.object("chat_template_kwargs");
  if (!extra) return;
  for (const auto& [name, value] : extra->json().items()) {
    if (name != "messages" && name != "tools") context[name] = value;
  }
}

}  // namespace fasa::serve
