#include "bindings/http/api/chat_prompt.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/api_error.h"
#include "bindings/http/turns.h"
#include "runtime/text/template/template.h"

namespace fasa::serve {
namespace {

// Stands behind an answer that is continued: the prompt ends where the template shows it.
constexpr const char* kContinued =
    "\xEE\x83\xB1"
    "continued"
    "\xEE\x83\xB1";

struct Variant {
  text::HistoryForm form;
  bool alternate = false;
};

// Templates that want objects get one.
void spell_arguments(Json& messages) {
  for (Json& message : messages) {
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      Json& arguments = call["function"]["arguments"];
      if (arguments.is_string()) arguments = Json{{"arguments", Json(arguments)}};
    }
  }
}

// The template's input.
Json context_of(Json context, bool generic, const Variant& variant) {
  if (!variant.form.system_anywhere) {
    context["messages"] = with_placed_systems(std::move(context["messages"]));
  }
  if (generic) context = with_generic_tools(std::move(context));
  if (variant.alternate) {
    context["messages"] = with_alternating_turns(std::move(context["messages"]));
  }
  if (!variant.form.arguments_as_text) spell_arguments(context["messages"]);
  return text::in_history_form(std::move(context), variant.form);
}

jinja::MarkedText render(const Json& context, const text::ChatTemplates& templates,
                         const std::tm& now) {
  jinja::Context read = jinja::parse_context(json_text(context), "the request");
  read.now = now;
  templates.add_control_tokens(&read);
  return templates.choose("", !context["tools"].is_null()).render(read);
}

// Whether an answer at the end is to be continued.
bool is_continued(const ChatRequest& request, const Json& last) {
  const bool answer = last.value("role", "") == "assistant" && !last.contains("tool_calls");
  if (request.continues.value_or(false) && !answer) {
    throw ApiError::bad_field("continue_final_message",
                              "the last message is no answer of the assistant; allowed: false");
  }
  return answer && request.continues.value_or(last.value("content", std::string()) != "");
}

// The prompt until the answer's end.
jinja::MarkedText until_continued(const jinja::MarkedText& prompt) {
  const size_t end = prompt.bytes().rfind(kContinued);
  if (end != std::string::npos) return prompt.part(0, end);
  throw ApiError::bad_field("messages",
                            "the last one is an answer, which this model's template cannot "
                            "continue; end with a message of the user");
}

}  // namespace

text::ChatPrompt chat_prompt(const ChatRequest& request, const PromptSetting& setting) {
  Json context = request.context;
  for (const auto& [name, value] : setting.variables.items()) {
    if (!context.contains(name)) context[name] = value;
  }
  if (context["messages"].empty()) {
    throw ApiError::bad_field(request.common.prompt_field, "there is no message to answer");
  }
  Json& last = context["messages"].back();
  const bool continued = is_continued(request, last);
  if (continued) last["content"] = last["content"].get<std::string>() + kContinued;
  if (continued || !context.contains("add_generation_prompt")) {
    context["add_generation_prompt"] = !continued;
  }
  std::vector<Json> tried;
  std::exception_ptr first;
  for (int changes = 0; changes < 8; ++changes) {
    Variant variant{.form = setting.chosen.format.history, .alternate = (changes & 4) != 0};
    if ((changes & 1) != 0) variant.form.system_anywhere = false;
    if ((changes & 2) != 0) variant.form.text_or_thought = true;
    Json input = context_of(context, setting.chosen.is_generic(), variant);
    if (std::find(tried.begin(), tried.end(), input) != tried.end()) continue;
    try {
      jinja::MarkedText prompt = render(input, setting.templates, setting.now);
      return text::ChatPrompt(continued ? until_continued(prompt) : std::move(prompt));
    } catch (const jinja::TemplateError&) {
      if (!first) first = std::current_exception();
      tried.push_back(std::move(input));
    }
  }
  std::rethrow_exception(first);
}

size_t end_of_messages(const text::ChatPrompt& prompt, const ChatRequest& request, size_t messages,
                       const PromptSetting& setting) {
  ChatRequest part{request};
  part.context["add_generation_prompt"] = false;
  Json& of = part.context["messages"];
  of.erase(of.begin() + static_cast<ptrdiff_t>(messages), of.end());
  try {
    const std::string& whole = prompt.text();
    const text::ChatPrompt rendered = chat_prompt(part, setting);
    const auto end =
        std::mismatch(whole.begin(), whole.end(), rendered.text().begin(), rendered.text().end());
    const auto bytes = static_cast<size_t>(end.first - whole.begin());
    return bytes < whole.size() ? bytes : 0;
  } catch (const Error&) {
    return 0;
  } catch (const ApiError&) {
    return 0;
  }
}

PromptBorders prompt_borders(const text::ChatPrompt& prompt, const ChatRequest& request,
                             const PromptSetting& setting) {
  const Json& messages = request.context["messages"];
  PromptBorders borders{.history = end_of_messages(prompt, request, messages.size(), setting)};
  size_t user = messages.size();
  while (user > 0 && messages[user - 1].value("role", "") != "user") --user;
  borders.user = user == messages.size() ? borders.history
                 : user == 0             ? 0
                                         : end_of_messages(prompt, request, user, setting);
  return borders;
}

}  // namespace fasa::serve
