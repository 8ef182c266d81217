#include "bindings/http/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bindings/http/api_error.h"
#include "runtime/base/error.h"
#include "runtime/text/grammar/schema_error.h"
#include "runtime/text/grammar/schema_grammar.h"

namespace fasa::serve {
namespace {

using text::ByteGrammar;
using text::JsonGrammar;
using text::SchemaGrammar;
using Symbols = std::vector<ByteGrammar::Symbol>;
using Places = std::vector<std::string>;  // of keywords that a grammar does not enforce

ApiError unsupported(const std::string& param, const std::string& message) {
  return {400, "invalid_request_error", message, param, "unsupported_value"};
}

// Any bytes up to the end tag of the reasoning. Rule i has matched the tag's first i bytes.
ByteGrammar::Rule thought_end(ByteGrammar& grammar) {
  constexpr std::string_view kEnd = "</think>";
  std::vector<ByteGrammar::Rule> rules;
  for (size_t i = 0; i <= kEnd.size(); ++i) rules.push_back(grammar.new_rule());
  for (size_t i = 0; i < kEnd.size(); ++i) {
    text::ByteSet others;
    others.set().reset(static_cast<unsigned char>(kEnd[i])).reset('<');
    grammar.add(rules[i], {grammar.byte_of(others), rules[0]});
    grammar.add(rules[i], {grammar.byte(kEnd[i]), rules[i + 1]});
    if (kEnd[i] != '<') grammar.add(rules[i], {grammar.byte('<'), rules[1]});
  }
  grammar.add(rules.back(), {JsonGrammar(grammar).blanks(), JsonGrammar(grammar).blanks()});
  return rules[0];
}

ByteGrammar::Rule behind_thought(ByteGrammar& grammar, ByteGrammar::Rule answer,
                                 ThoughtForm thought) {
  if (thought == ThoughtForm::kNone) return answer;
  const ByteGrammar::Rule rule = grammar.new_rule();
  if (thought == ThoughtForm::kOptional) {
    grammar.add(rule, {answer});
    Symbols symbols = grammar.literal("<think>");
    symbols.insert(symbols.end(), {thought_end(grammar), answer});
    grammar.add(rule, symbols);
  } else {
    grammar.add(rule, {thought_end(grammar), answer});
  }
  return rule;
}

struct CallSpelling {
  std::string before, between, behind;  // around the name and the arguments
};

CallSpelling spelling_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>"};
    case ToolFormat::kLlama:
      return {"{\"name\": \"", "\", \"parameters\": ", "}"};
    case ToolFormat::kMistral:
      return {"[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": ", "}]"};
    default:
      return {"[TOOL_CALLS]", "[ARGS]", ""};
  }
}

ByteGrammar::Rule rule_of_schema(ByteGrammar& grammar, const Json& schema, const std::string& place,
                                 Places& ignored) {
  SchemaGrammar reader(grammar, schema, place);
  const ByteGrammar::Rule rule = reader.build();
  ignored.insert(ignored.end(), reader.ignored().begin(), reader.ignored().end());
  return rule;
}

// Arguments are always an object, whatever else the schema allows.
ByteGrammar::Rule arguments_of(ByteGrammar& grammar, const Tool& tool, const std::string& place,
                               Places& ignored) {
  if (tool.parameters.is_null()) return JsonGrammar(grammar).literal("{}");
  if (tool.parameters.empty()) return JsonGrammar(grammar).object();
  const auto type = tool.parameters.find("type");
  if (type == tool.parameters.end() || *type != "object") {
    throw text::SchemaError(place + ".type", "allowed: \"object\"");
  }
  return rule_of_schema(grammar, tool.parameters, place, ignored);
}

ByteGrammar::Rule answer_rule(ByteGrammar& grammar, const ResponseFormat& format, Places& ignored) {
  if (format.kind == ResponseFormat::Kind::kJsonObject) return JsonGrammar(grammar).object();
  if (format.kind == ResponseFormat::Kind::kJsonSchema) {
    return rule_of_schema(grammar, format.schema, format.place, ignored);
  }
  const ByteGrammar::Rule choice = grammar.new_rule();
  for (const std::string& text : format.choices) grammar.add(choice, grammar.literal(text));
  return choice;
}

std::string key_of(const ResponseFormat& format) {
  if (format.kind == ResponseFormat::Kind::kText) return "";
  if (format.kind == ResponseFormat::Kind::kChoice) return "choice " + Json(format.choices).dump();
  return "json " + (format.schema.is_null() ? "" : format.place + " " + format.schema.dump());
}

// Rethrows the grammar's errors as ApiError.
template <typename Build>
ByteGrammar build_grammar(const std::string& param, ThoughtForm thought, Build build) {
  try {
    ByteGrammar grammar;
    grammar.seal(behind_thought(grammar, build(grammar), thought));
    return grammar;
  } catch (const text::SchemaError& error) {
    throw unsupported(error.place(), error.what());
  } catch (const InputError& error) {
    throw unsupported(param, param + ": " + error.what());
  }
}

// `strict`: the beginning of the places whose schema has it.
void require_enforced(const Places& ignored, const std::string& strict) {
  for (const std::string& place : ignored) {
    if (!place.starts_with(strict)) continue;
    throw unsupported(place, place +
                                 ": this server does not enforce this keyword, and the schema "
                                 "is strict; remove the keyword, or strict");
  }
}

}  // namespace

ResponseFormat read_text_format(const RequestFields& format) {
  const std::string type = format.string("type").value_or("");
  const Json* const schema = format.find("schema");
  if (type == "text") return {};
  // llama.cpp's server takes a schema beside json_object.
  if (type == "json_object" && schema == nullptr) {
    return {.kind = ResponseFormat::Kind::kJsonObject, .field = format.path()};
  }
  if (type != "json_schema" && type != "json_object") {
    throw ApiError::bad_field(
        format.path_of("type"),
        fmt::format("\"{}\"; allowed: text, json_object, json_schema", type.substr(0, 40)));
  }
  if (schema == nullptr) {
    throw ApiError::bad_field(format.path_of("schema"), "missing; allowed: a JSON Schema");
  }
  return {.kind = ResponseFormat::Kind::kJsonSchema,
          .schema = *schema,
          .strict = format.boolean("strict").value_or(false),
          .field = format.path(),
          .place = format.path_of("schema")};
}

namespace {

ResponseFormat read_openai_format(const RequestFields& format) {
  const auto inner = format.object("json_schema");
  if (format.string("type") != "json_schema") return read_text_format(format);
  if (!inner) {
    throw ApiError::bad_field("response_format.json_schema", "missing; allowed: an object");
  }
  const Json* const schema = inner->find("schema");
  if (schema == nullptr) {
    throw ApiError::bad_field(inner->path_of("schema"), "missing; allowed: a JSON Schema");
  }
  return {.kind = ResponseFormat::Kind::kJsonSchema,
          .schema = *schema,
          .strict = inner->boolean("strict").value_or(false)};
}

// A schema, or its text.
ResponseFormat schema_format(const Json& schema, const char* field) {
  return {.kind = ResponseFormat::Kind::kJsonSchema,
          .schema = schema.is_string() ? parse_body(schema.get<std::string>()) : schema,
          .field = field};
}

ResponseFormat choice_format(const RequestFields& fields, const char* name, const char* field) {
  constexpr size_t kMaxTexts = 1000;
  ResponseFormat format{.kind = ResponseFormat::Kind::kChoice,
                        .choices = fields.strings(name, kMaxTexts),
                        .field = field};
  const auto& texts = format.choices;
  if (texts.empty() ||
      std::any_of(texts.begin(), texts.end(), [](const auto& text) { return text.empty(); })) {
    throw ApiError::bad_field(field, "allowed: a list of texts that are not empty");
  }
  return format;
}

constexpr const char* kNoGrammar =
    "this server does not support regular expressions and grammars; allowed: a JSON Schema "
    "(response_format), or a choice of texts (structured_outputs.choice)";

void refuse_grammars(const RequestFields& fields) {
  for (const char* const name : {"guided_regex", "guided_grammar", "grammar"}) {
    fields.refuse(name, {""}, kNoGrammar);
  }
}

// vLLM's.
void read_structured(const RequestFields& outputs, std::vector<ResponseFormat>& formats) {
  for (const char* const name : {"regex", "grammar", "structural_tag"}) {
    outputs.refuse(name, {}, kNoGrammar);
  }
  if (const Json* const schema = outputs.find("json")) {
    formats.push_back(schema_format(*schema, "structured_outputs.json"));
  }
  if (outputs.find("choice") != nullptr) {
    formats.push_back(choice_format(outputs, "choice", "structured_outputs.choice"));
  }
  if (outputs.boolean("json_object").value_or(false)) {
    formats.push_back({.kind = ResponseFormat::Kind::kJsonObject});
  }
}

}  // namespace

ResponseFormat read_response_format(const RequestFields& fields) {
  refuse_grammars(fields);
  std::vector<ResponseFormat> formats;
  if (const auto format = fields.object("response_format")) {
    formats.push_back(read_openai_format(*format));
    if (formats.back().kind == ResponseFormat::Kind::kText) formats.pop_back();
  }
  if (const auto outputs = fields.object("structured_outputs")) read_structured(*outputs, formats);
  if (const Json* const schema = fields.find("guided_json")) {
    formats.push_back(schema_format(*schema, "guided_json"));
  }
  if (fields.find("guided_choice") != nullptr) {
    formats.push_back(choice_format(fields, "guided_choice", "guided_choice"));
  }
  if (const Json* const schema = fields.find("json_schema")) {
    formats.push_back(schema_format(*schema, "json_schema"));
  }
  if (formats.size() > 1) {
    throw ApiError::bad_field(
        formats[1].field, fmt::format("allowed: only one format; {} is given", formats[0].field));
  }
  return formats.empty() ? ResponseFormat{} : std::move(formats[0]);
}

template <typename Build>
AnswerGrammar AnswerGrammars::find(std::string key, const std::string& field, ThoughtForm thought,
                                   Build build) {
  const auto cached = [&]() -> const AnswerGrammar* {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return one.first == key; });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return &kept_.front().second;
  };
  {
    const std::lock_guard lock(mutex_);
    if (const AnswerGrammar* const known = cached()) return *known;
  }
  AnswerGrammar made;
  made.grammar = std::make_shared<text::TokenGrammar>(
      build_grammar(field, thought,
                    [&](ByteGrammar& grammar) { return build(grammar, made.ignored); }),
      tokens_);
  const std::lock_guard lock(mutex_);
  if (const AnswerGrammar* const known = cached()) return *known;  // made by another thread
  kept_.emplace_front(std::move(key), made);
  forget_old();
  return made;
}

// Answers in progress keep their grammars.
void AnswerGrammars::forget_old() {
  size_t bytes = 0, count = 0;
  for (auto one = kept_.begin(); one != kept_.end();) {
    bytes += one->first.size() + one->second.grammar->bytes();
    const bool goes = count > 0 && (count >= kMaxKept || bytes > kMaxBytes);
    ++count;
    one = goes ? kept_.erase(one) : std::next(one);
  }
}

AnswerGrammar AnswerGrammars::of_format(const ResponseFormat& format, ThoughtForm thought) {
  AnswerGrammar grammar = find(
      fmt::format("{} {}", static_cast<int>(thought), key_of(format)), format.field, thought,
      [&](ByteGrammar& rules, Places& ignored) { return answer_rule(rules, format, ignored); });
  if (format.strict) require_enforced(grammar.ignored, "");
  return grammar;
}

AnswerGrammar AnswerGrammars::of_call(const ToolFields& tools, ToolFormat format,
                                      ThoughtForm thought, const ResponseFormat& otherwise) {
  std::string key = fmt::format("{} call {} {}", static_cast<int>(thought),
                                static_cast<int>(format), key_of(otherwise));
  for (const Tool& tool : tools.tools) {
    if (tools.may_call(tool)) key += "\n" + tool.name + " " + tool.parameters.dump();
  }
  const auto build = [&](ByteGrammar& grammar, Places& ignored) {
    const CallSpelling spelling = spelling_of(format);
    const ByteGrammar::Rule call = grammar.new_rule();
    for (const Tool& tool : tools.tools) {
      if (!tools.may_call(tool)) continue;
      Symbols symbols = grammar.literal(spelling.before + tool.name + spelling.between);
      symbols.push_back(arguments_of(grammar, tool, tool.name + ".parameters", ignored));
      const Symbols end = grammar.literal(spelling.behind);
      symbols.insert(symbols.end(), end.begin(), end.end());
      grammar.add(call, symbols);
    }
    if (otherwise.kind != ResponseFormat::Kind::kText) {
      grammar.add(call, {answer_rule(grammar, otherwise, ignored)});
    }
    return call;
  };
  AnswerGrammar grammar = find(std::move(key), "tools", thought, build);
  if (otherwise.strict) require_enforced(grammar.ignored, otherwise.place);
  for (const Tool& tool : tools.tools) {
    if (tool.strict) require_enforced(grammar.ignored, tool.name + ".parameters");
  }
  return grammar;
}

}  // namespace fasa::serve
