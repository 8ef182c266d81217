#include "runtime/text/answer/answer_format.h"

#include <algorithm>

namespace fasa::text {
namespace {

const Region kThink{"<think>", "</think>"};

CallFormat tagged_json(const char* open, const char* close) {
  return {.open = open,
          .name_member = "name",
          .arguments_member = "arguments",
          .close = close,
          .between = "\n"};
}

CallFormat tagged_parameters(const char* open, const char* close, const char* around) {
  return {.open = open,
          .name_open = "<function=",
          .name_close = ">\n",
          .arguments = ArgumentForm::kTags,
          .tags = {"<parameter=", ">" + std::string(around), "",
                   around + std::string("</parameter>\n")},
          .close = std::string("</function>\n") + close,
          .between = "\n"};
}

CallFormat listed_json(const char* open, const char* close) {
  return {.section_open = open,
          .section_close = close,
          .list = true,
          .name_member = "name",
          .arguments_member = "arguments",
          .between = ", "};
}

using Formats = std::vector<AnswerFormat>;

// Names and arguments in tags or pairs of their own.
void add_tagged(Formats& rows) {
  // Qwen 2.5, QwQ, Qwen3 and Qwen3-Next, Hermes, EXAONE 4, SmolLM3, Granite 4; the generic form.
  rows.push_back({.name = "hermes",
                  .thoughts = {kThink},
                  .calls = tagged_json("<tool_call>\n", "\n</tool_call>")});
  // Qwen3-Coder, Qwen3.5, Qwen3.6.
  rows.push_back({.name = "qwen-tags",
                  .thoughts = {kThink},
                  .call_ends_thought = true,
                  .calls = tagged_parameters("<tool_call>\n", "</tool_call>", "\n")});
  rows.push_back({.name = "seed-tags",
                  .thoughts = {{"<seed:think>", "</seed:think>"}},
                  .call_ends_thought = true,
                  .asides = {"<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"},
                  .calls = tagged_parameters("<seed:tool_call>\n", "</seed:tool_call>", "")});
  rows.push_back({.name = "glm-tags",  // GLM-4.5 and later
                  .thoughts = {kThink},
                  .call_ends_thought = true,
                  .calls = {.open = "<tool_call>",
                            .name_close = "\n",
                            .arguments = ArgumentForm::kTags,
                            .tags = {"<arg_key>", "</arg_key>\n", "<arg_value>", "</arg_value>\n"},
                            .close = "</tool_call>",
                            .between = "\n"},
                  .ends = {"<|observation|>"}});
  rows.push_back({.name = "gemma-pairs",  // Gemma 4
                  .thoughts = {{"<|channel>thought\n", "<channel|>"}, kThink},
                  .call_ends_thought = true,
                  .calls = {.open = "<|tool_call>",
                            .name_open = "call:",
                            .arguments = ArgumentForm::kPairs,
                            .quote = "<|\"|>",
                            .close = "<tool_call|>"},
                  .ends = {"<|tool_response>"}});
  rows.push_back({.name = "function-gemma",
                  .thoughts = {kThink},
                  .calls = {.open = "<start_function_call>",
                            .name_open = "call:",
                            .arguments = ArgumentForm::kPairs,
                            .quote = "<escape>",
                            .close = "<end_function_call>"},
                  .ends = {"<start_function_response>"}});
}

// Parts of an answer, reasoning and calls among them, in marks of their own; Python's calls.
void add_marked(Formats& rows) {
  rows.push_back({.name = "channels",  // gpt-oss
                  .channels = {.open = "<|channel|>",
                               .message = "<|message|>",
                               .end = "<|end|>",
                               .start = "<|start|>",
                               .role = "assistant",
                               .thought = "analysis",
                               .content = "final",
                               .call = "commentary",
                               .recipient = "to=functions.",
                               .constraint = "<|constrain|>json"},
                  .calls = {.close = "<|call|>"},
                  .ends = {"<|call|>", "<|return|>"}});
  rows.push_back(
      {.name = "actions",  // Command R7B, Command A
       .thoughts = {{"<|START_THINKING|>", "<|END_THINKING|>"}},
       .call_ends_thought = true,
       .contents = {{"<|START_RESPONSE|>", "<|END_RESPONSE|>"}, {"<|START_TEXT|>", "<|END_TEXT|>"}},
       .calls = {.section_open = "<|START_ACTION|>",
                 .section_close = "<|END_ACTION|>",
                 .list = true,
                 .name_member = "tool_name",
                 .arguments_member = "parameters",
                 .id_member = "tool_call_id",
                 .between = ",\n"}});
  rows.push_back({.name = "python-calls",  // OLMo 3
                  .thoughts = {kThink},
                  .calls = {.section_open = "<function_calls>",
                            .section_close = "</function_calls>",
                            .arguments = ArgumentForm::kKeywords,
                            .between = "\n"}});
  rows.push_back(
      {.name = "mistral-arguments",  // Mistral Small 3.2, Devstral, Ministral 3
       .thoughts = {{"[THINK]", "[/THINK]"}, kThink},
       .call_ends_thought = true,
       .calls = {.open = "[TOOL_CALLS]", .name_close = "[ARGS]", .id_open = "[CALL_ID]"}});
}

// A list of objects behind a mark.
void add_listed(Formats& rows) {
  rows.push_back({.name = "mistral-list",  // Mistral 7B v0.3, Nemo, Large 2407, Mixtral 8x22B
                  .thoughts = {kThink},
                  .calls = listed_json("[TOOL_CALLS]", "")});
  rows.push_back({.name = "phi-list",  // Phi-4-mini
                  .thoughts = {kThink},
                  .calls = listed_json("<|tool_call|>", "<|/tool_call|>")});
  rows.push_back({.name = "nemotron-list",
                  .thoughts = {kThink},
                  .calls = listed_json("<TOOLCALL>", "</TOOLCALL>")});
  rows.push_back({.name = "granite-list",  // Granite 3.1 to 3.3
                  .thoughts = {kThink},
                  .contents = {{"<response>", "</response>"}},
                  .calls = listed_json("<tool_call>", "")});
  rows.push_back({.name = "granite-mark",  // Granite 3.0
                  .thoughts = {kThink},
                  .calls = listed_json("<|tool_call|>", "")});
}

// The name before its object; or no mark, or one that says little.
void add_named(Formats& rows) {
  rows.push_back({.name = "deepseek-blocks",  // DeepSeek V2.5, V3, R1 and what was distilled of it
                  .thoughts = {kThink},
                  .call_ends_thought = true,
                  .calls = {.section_open = "<｜tool▁calls▁begin｜>",
                            .section_close = "<｜tool▁calls▁end｜>",
                            .open = "<｜tool▁call▁begin｜>",
                            .name_open = "function<｜tool▁sep｜>",
                            .name_close = "\n```json\n",
                            .close = "\n```<｜tool▁call▁end｜>",
                            .between = "\n"}});
  rows.push_back({.name = "deepseek-calls",  // DeepSeek V3.1
                  .thoughts = {kThink},
                  .call_ends_thought = true,
                  .calls = {.section_open = "<｜tool▁calls▁begin｜>",
                            .section_close = "<｜tool▁calls▁end｜>",
                            .open = "<｜tool▁call▁begin｜>",
                            .name_close = "<｜tool▁sep｜>",
                            .close = "<｜tool▁call▁end｜>"}});
  rows.push_back({.name = "glm-names",  // GLM-4-0414, GLM-Z1
                  .thoughts = {kThink},
                  .calls = {.open = "<|assistant|>", .alone = true, .name_close = "\n"},
                  .ends = {"<|observation|>"}});
  rows.push_back({.name = "llama-json",  // Llama 3.1 to 3.3
                  .thoughts = {kThink},
                  .calls = {.open = "<|python_tag|>",
                            .alone = true,
                            .name_member = "name",
                            .arguments_member = "parameters",
                            .between = "; "},
                  .ends = {"<|eom_id|>"},
                  .hints = {"<|python_tag|>", "dictionary of argument name"}});
  rows.push_back(
      {.name = "python-list",  // some Llama 3.2
       .thoughts = {kThink},
       .calls = {
           .list = true, .alone = true, .arguments = ArgumentForm::kKeywords, .between = ", "}});
}

Formats make_formats() {
  Formats rows;
  for (const auto add : {add_tagged, add_marked, add_listed, add_named}) add(rows);
  return rows;
}

// "<think>" of "\n<think>call": what stands in angle or square brackets.
void add_marks(std::string_view text, std::vector<std::string>& marks) {
  for (size_t at = 0; (at = text.find_first_of("<[", at)) != std::string_view::npos;) {
    const size_t end = text.find(text[at] == '<' ? '>' : ']', at);
    if (end == std::string_view::npos) return;
    std::string mark(text.substr(at, end + 1 - at));
    if (std::find(marks.begin(), marks.end(), mark) == marks.end())
      marks.push_back(std::move(mark));
    at = end + 1;
  }
}

}  // namespace

void AnswerFormat::each_text(const std::function<void(std::string&)>& visit) {
  for (auto* const regions : {&thoughts, &contents}) {
    for (Region& region : *regions) {
      visit(region.open);
      visit(region.close);
    }
  }
  for (std::string& aside : asides) visit(aside);
  for (std::string* const text :
       {&channels.open, &channels.message, &channels.end, &channels.start, &channels.constraint,
        &calls.section_open, &calls.section_close, &calls.open, &calls.name_open, &calls.name_close,
        &calls.id_open, &calls.tags.key_open, &calls.tags.key_close, &calls.tags.value_open,
        &calls.tags.value_close, &calls.quote, &calls.close}) {
    visit(*text);
  }
}

std::vector<std::string> AnswerFormat::marks() const {
  std::vector<std::string> marks;
  AnswerFormat row = *this;
  row.each_text([&](std::string& text) { add_marks(text, marks); });
  return marks;
}

std::span<const AnswerFormat> answer_formats() {
  static const std::vector<AnswerFormat> rows = make_formats();
  return rows;
}

const AnswerFormat* find_answer_format(std::string_view name) {
  const auto rows = answer_formats();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \n\r\t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

}  // namespace fasa::text
