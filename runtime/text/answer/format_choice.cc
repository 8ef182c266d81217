#include "runtime/text/answer/format_choice.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/text/answer/call_writer.h"
#include "runtime/text/answer/mark_search.h"
#include "runtime/text/template/context.h"

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

// Texts that no template has by itself. The ids are nine letters, which all templates accept.
constexpr const char* kNames[] = {"zqalpha", "zqbeta"};
constexpr const char* kIds[] = {"zqid00001", "zqid00002"};
constexpr const char* kKey = "zqkey";
constexpr const char* kValues[] = {"zqone", "zqtwo"};
constexpr const char* kThought = "zqthought";
constexpr const char* kSaid = "zqsaid";

std::string without_all_blanks(std::string text) {
  std::erase_if(text, is_blank);
  return text;
}

Json made_up_tools() {
  Json tools = Json::array();
  for (const char* const name : kNames) {
    const Json key = {{"type", "string"}, {"description", "zqtext"}};
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", name},
                       {"description", "zqtool"},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{kKey, key}}},
                         {"required", Json::array({kKey})}}}}}});
  }
  return tools;
}

Json user(const char* text) { return {{"role", "user"}, {"content", text}}; }

// How the made-up conversation differs.
struct Variant {
  size_t calls = 2;
  bool text_arguments = false;
  bool results = true;
  bool null_content = false;
  bool long_ids = false;
  bool content = false;
  bool thought = false;
};

Json call_conversation(const Variant& variant) {
  const auto id_of = [&](size_t i) {
    return variant.long_ids ? "call_zq_long_" + std::to_string(i) : std::string(kIds[i]);
  };
  Json answer = {{"role", "assistant"}, {"content", variant.content ? kSaid : ""}};
  if (variant.null_content) answer["content"] = nullptr;
  if (variant.thought) answer["reasoning_content"] = answer["thinking"] = kThought;
  answer["tool_calls"] = Json::array();
  Json results = Json::array();
  for (size_t i = 0; i < variant.calls; ++i) {
    const Json arguments = {{kKey, kValues[i]}};
    answer["tool_calls"].push_back(
        {{"id", id_of(i)},
         {"type", "function"},
         {"function",
          {{"name", kNames[i]},
           {"arguments", variant.text_arguments ? Json(arguments.dump()) : arguments}}}});
    results.push_back({{"role", "tool"},
                       {"tool_call_id", id_of(i)},
                       {"name", kNames[i]},
                       {"content", "zqresult"}});
  }
  Json messages = Json::array({user("zqask"), std::move(answer)});
  if (variant.results) messages.insert(messages.end(), results.begin(), results.end());
  return messages;
}

class Probe {
 public:
  explicit Probe(const ChatTemplates& templates) : templates_(templates) {}

  // Nothing if the template fails. One that ran into its limit of work is asked no more.
  std::optional<std::string> render(Json messages, bool tools) const {
    constexpr std::chrono::seconds kSlow{2};
    const auto begun = std::chrono::steady_clock::now();
    auto text = slow_ ? std::nullopt : try_to_render(std::move(messages), tools);
    slow_ |= !text && std::chrono::steady_clock::now() - begun > kSlow;
    return text;
  }
  std::optional<std::string> render(const Variant& variant) const {
    return render(call_conversation(variant), true);
  }

 private:
  std::optional<std::string> try_to_render(Json messages, bool tools) const {
    Json context = {{"messages", std::move(messages)},
                    {"tools", tools ? made_up_tools() : Json(nullptr)},
                    {"documents", nullptr},
                    {"add_generation_prompt", false}};
    try {
      jinja::Context read = jinja::parse_context(context.dump(), "a made-up conversation");
      read.now = jinja::time_of_epoch(0);
      return templates_.render(std::move(read)).text();
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  const ChatTemplates& templates_;
  mutable bool slow_ = false;
};

bool contains(const std::optional<std::string>& text, std::string_view part) {
  return text && text->find(part) != std::string::npos;
}

// The texts that a rendering has if the template writes calls in the row's format, without blanks.
std::vector<std::string> expected_texts(const AnswerFormat& row, size_t count) {
  std::vector<WrittenCall> calls;
  for (size_t i = 0; i < count; ++i) calls.push_back({kNames[i], {{kKey, kValues[i]}}});
  std::vector<std::string> texts{without_all_blanks(write_calls(row, calls))};
  if (row.calls.name_member.empty()) return texts;
  // Members in the other order.
  for (const WrittenCall& call : calls) {
    const std::string name = "\"" + row.calls.name_member + "\":\"" + call.name + "\"";
    const std::string arguments = "\"" + row.calls.arguments_member + "\":" + call.arguments.dump();
    if (texts.size() == 1) texts.push_back(texts[0]);
    std::string& other = texts[1];
    const std::string usual = name + "," + arguments;
    if (const size_t at = other.find(usual); at != std::string::npos) {
      other.replace(at, usual.size(), arguments + "," + name);
    }
  }
  return texts;
}

bool fits(const AnswerFormat& row, std::string rendered, size_t count) {
  rendered = without_all_blanks(std::move(rendered));
  for (const char* const id : kIds) {
    for (const std::string& spelled :
         {",\"id\":\"" + std::string(id) + "\"", "\"id\":\"" + std::string(id) + "\",",
          row.calls.id_open + id}) {
      const size_t at = rendered.find(spelled);
      if (at != std::string::npos) rendered.erase(at, spelled.size());
    }
  }
  const auto has = [&](const std::string& text) {
    return rendered.find(text) != std::string::npos;
  };
  if (!row.channels.open.empty()) {
    for (size_t i = 0; i < count; ++i) {
      const std::string arguments = Json{{kKey, kValues[i]}}.dump();
      if (!has(row.channels.recipient + kNames[i]) || !has(row.channels.message + arguments)) {
        return false;
      }
    }
    return true;
  }
  const auto texts = expected_texts(row, count);
  return std::any_of(texts.begin(), texts.end(), has);
}

// The row whose calls the template renders, and what it wants of their history.
std::optional<std::pair<AnswerFormat, Variant>> rendered_format(const Probe& probe) {
  for (unsigned forms = 0; forms < 16; ++forms) {
    const Variant variant{.calls = (forms & 8) == 0 ? size_t{2} : size_t{1},
                          .text_arguments = (forms & 1) != 0,
                          .results = (forms & 4) == 0,
                          .null_content = (forms & 2) != 0};
    const auto rendered = probe.render(variant);
    if (!rendered) continue;
    for (const AnswerFormat& row : answer_formats()) {
      if (fits(row, *rendered, variant.calls)) return std::pair(row, variant);
    }
  }
  return std::nullopt;
}

// Marks in the source: the row of which it has the most, all of those that belong to calls.
const AnswerFormat* described_format(const std::string& source) {
  const AnswerFormat* best = nullptr;
  size_t most = 0;
  for (const AnswerFormat& row : answer_formats()) {
    const CallFormat& calls = row.calls;
    size_t score = 0;
    bool all = true;
    for (const std::string* const text :
         {&calls.section_open, &calls.section_close, &calls.open, &calls.name_open,
          &calls.name_close, &calls.tags.key_open, &calls.tags.value_open, &calls.quote,
          &calls.close, &row.channels.open, &row.channels.recipient}) {
      for (const std::string& mark : words_of(*text)) {
        all &= source.find(mark) != std::string::npos;
        score += mark.size() > 1 ? 1 : 0;
      }
    }
    if (all && score > most && !calls.alone) {
      most = score;
      best = &row;
    }
    const bool hinted = std::any_of(
        row.hints.begin(), row.hints.end(),
        [&](const std::string& hint) { return source.find(hint) != std::string::npos; });
    if (hinted && most == 0) best = &row;
  }
  return best;
}

// "<think>" at the end of the text before a thought, "</think>" behind it.
std::optional<Region> marks_around(const std::string& rendered) {
  const size_t at = rendered.find(kThought);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view before = std::string_view(rendered).substr(
      0, without_trailing_blanks(std::string_view(rendered).substr(0, at)));
  std::string_view behind =
      std::string_view(rendered).substr(at + std::string_view(kThought).size());
  behind.remove_prefix(leading_blanks(behind));
  for (const AnswerFormat& row : answer_formats()) {
    for (const Region& region : row.thoughts) {
      if (before.ends_with(without_blanks(region.open)) &&
          behind.starts_with(without_blanks(region.close))) {
        return region;
      }
    }
  }
  const auto brackets = [](std::string_view text) {
    return !text.empty() && (text[0] == '<' || text[0] == '[');
  };
  const size_t open = before.find_last_of("<[");
  const size_t close = behind.find_first_of(">]");
  const bool closed = !before.empty() && (before.back() == '>' || before.back() == ']');
  if (!closed || open == std::string_view::npos || !brackets(behind) ||
      close == std::string_view::npos) {
    return std::nullopt;
  }
  return Region{std::string(before.substr(open)), std::string(behind.substr(0, close + 1))};
}

void ask_of_reasoning(const Probe& probe, AnswerFormat& format) {
  const Json thinking = {{"role", "assistant"},
                         {"content", kSaid},
                         {"reasoning_content", kThought},
                         {"thinking", kThought}};
  const Json parts = {{"role", "assistant"},
                      {"content", Json::array({{{"type", "thinking"}, {"thinking", kThought}},
                                               {{"type", "text"}, {"text", kSaid}}})}};
  HistoryForm& history = format.history;
  for (const bool as_parts : {false, true}) {
    const Json& answer = as_parts ? parts : thinking;
    const auto shown = probe.render(Json::array({user("zqask"), answer}), false);
    // A template that writes any content shows the list itself.
    if (!contains(shown, kThought) || contains(shown, "type")) continue;
    history.shows_reasoning = true;
    history.thinking_parts = as_parts;
    history.keeps_reasoning = contains(
        probe.render(Json::array({user("zqask"), answer, user("zqmore")}), false), kThought);
    const auto region = format.channels.open.empty() ? marks_around(*shown) : std::nullopt;
    if (!region) return;
    std::erase_if(format.thoughts, [&](const Region& one) { return one.open == region->open; });
    format.thoughts.insert(format.thoughts.begin(), *region);
    return;
  }
}

void ask_of_history(const Probe& probe, const std::optional<Variant>& calls, AnswerFormat& format) {
  HistoryForm& history = format.history;
  const auto later = probe.render(Json::array({{{"role", "system"}, {"content", "zqfirst"}},
                                               user("zqask"),
                                               {{"role", "assistant"}, {"content", kSaid}},
                                               {{"role", "system"}, {"content", "zqlater"}},
                                               user("zqmore")}),
                                  false);
  history.system_anywhere = contains(later, "zqlater");
  ask_of_reasoning(probe, format);
  if (!calls) return;
  history.arguments_as_text = calls->text_arguments;
  history.one_call = calls->calls == 1;
  history.null_content = calls->null_content;
  Variant variant = *calls;
  variant.long_ids = true;
  history.nine_letter_ids = !probe.render(variant);
  variant.long_ids = false;
  if (variant.null_content) return;
  variant.content = true;
  const bool content = probe.render(variant).has_value();
  variant.thought = true;
  history.text_or_thought = content && !probe.render(variant);
}

}  // namespace

ChosenFormat choose_answer_format(const ChatTemplates& templates) {
  const std::string& source = templates.source("", true);
  const Probe probe(templates);
  const auto rendered = rendered_format(probe);
  ChosenFormat chosen{answer_formats()[0], "generic"};
  const std::string& declared = templates.response_template();
  auto given = format_of_response_template(declared);
  if (!given && !declared.empty()) {
    log_warning(
        "response_template of tokenizer_config.json describes no format that is known; the "
        "chat template decides");
  }
  if (given) {
    chosen = {*std::move(given), "response_template"};
  } else if (rendered) {
    chosen = {rendered->first, "rendered"};
  } else if (const AnswerFormat* const row = described_format(source)) {
    chosen = {*row, "described"};
  } else if (source.find("tools") != std::string::npos) {
    chosen = {AnswerFormat{.name = "unknown", .thoughts = chosen.format.thoughts}, "unknown"};
  }
  ask_of_history(probe, rendered ? std::optional(rendered->second) : std::nullopt, chosen.format);
  return chosen;
}

}  // namespace fasa::text
