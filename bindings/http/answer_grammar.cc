#include "bindings/http/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bindings/http/api_error.h"
#include "runtime/base/error.h"
#include "runtime/text/answer/call_grammar.h"
#include "runtime/text/grammar/schema_error.h"
#include "runtime/text/grammar/schema_grammar.h"

namespace fasa::serve {
namespace {

using text::ByteGrammar;
using text::JsonGrammar;
using text::SchemaGrammar;
using Places = std::vector<std::string>;  // of keywords that a grammar does not enforce

ApiError unsupported(const std::string& param, const std::string& message) {
  return {400, "invalid_request_error", message, param, "unsupported_value"};
}

ByteGrammar::Rule rule_of_schema(ByteGrammar& grammar, const Json& schema, const std::string& place,
                                 Places& ignored) {
  SchemaGrammar reader(grammar, schema, place);
  const ByteGrammar::Rule rule = reader.build();
  ignored.insert(ignored.end(), reader.ignored().begin(), reader.ignored().end());
  return rule;
}

std::vector<text::CallableFunction> functions_of(const ToolFields& tools) {
  std::vector<text::CallableFunction> functions;
  for (const Tool& tool : tools.tools) {
    if (tools.may_call(tool)) functions.push_back({tool.name, tool.parameters});
  }
  return functions;
}

ByteGrammar::Rule answer_rule(ByteGrammar& grammar, const ResponseFormat& format,
                              const AnswerSpelling& spelling, Places& ignored) {
  if (format.kind == ResponseFormat::Kind::kJsonObject) return JsonGrammar(grammar).object();
  if (format.kind == ResponseFormat::Kind::kJsonSchema) {
    return rule_of_schema(grammar, format.schema, format.place, ignored);
  }
  const ByteGrammar::Rule choice = grammar.new_rule();
  for (const std::string& text : format.choices) {
    grammar.add(choice, grammar.literal(spelling.format.codes.coded(text)));
  }
  return choice;
}

std::string key_of(const ResponseFormat& format) {
  if (format.kind == ResponseFormat::Kind::kText) return "";
  if (format.kind == ResponseFormat::Kind::kChoice) return "choice " + Json(format.choices).dump();
  return "json " + (format.schema.is_null() ? "" : format.place + " " + format.schema.dump());
}

std::string key_of(const AnswerSpelling& spelling) {
  std::string key = fmt::format("{} {}", static_cast<int>(spelling.thought), spelling.in_content);
  for (const text::Region& region : spelling.regions) key += " " + region.open + region.close;
  return key;
}

std::string key_of(const std::vector<text::CallableFunction>& functions) {
  std::string key;
  for (const auto& function : functions) {
    key += "\n" + function.name + " " +
           function.parameters.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return key;
}

// The thought that may precede the answer, and the marks of content.
ByteGrammar::Rule whole_answer(text::CallGrammar& calls, const AnswerSpelling& spelling,
                               ByteGrammar::Rule answer) {
  if (spelling.thought == ThoughtForm::kNone) return answer;
  return calls.behind_thought(spelling.regions, spelling.thought == ThoughtForm::kOpen, answer);
}

// Rethrows the grammar's errors as ApiError.
template <typename Build>
ByteGrammar build_grammar(const std::string& param, Build build) {
  try {
    ByteGrammar grammar;
    grammar.seal(build(grammar));
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
AnswerGrammar AnswerGrammars::find(std::string key, const std::string& field, Build build) {
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
      build_grammar(field, [&](ByteGrammar& grammar) { return build(grammar, made.ignored); }),
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

AnswerGrammar AnswerGrammars::of_format(const ResponseFormat& format,
                                        const AnswerSpelling& spelling) {
  const auto build = [&](ByteGrammar& rules, Places& ignored) {
    text::CallGrammar calls(rules, spelling.format, true);
    ByteGrammar::Rule answer = answer_rule(rules, format, spelling, ignored);
    const bool marks = spelling.thought != ThoughtForm::kNone && !spelling.in_content;
    if (marks) answer = calls.content(answer);
    return whole_answer(calls, spelling, answer);
  };
  AnswerGrammar grammar = find(key_of(spelling) + " " + key_of(format), format.field, build);
  if (format.strict) require_enforced(grammar.ignored, "");
  return grammar;
}

AnswerGrammar AnswerGrammars::of_call(const ToolFields& tools, const AnswerSpelling& spelling,
                                      const ResponseFormat& otherwise) {
  const auto functions = functions_of(tools);
  std::string key = key_of(spelling) + " call " + key_of(otherwise) + key_of(functions);
  const auto build = [&](ByteGrammar& rules, Places& ignored) {
    text::CallGrammar calls(rules, spelling.format, true);
    const ByteGrammar::Rule call = calls.call(functions);
    if (otherwise.kind != ResponseFormat::Kind::kText) {
      rules.add(call, {calls.content(answer_rule(rules, otherwise, spelling, ignored))});
    }
    ignored.insert(ignored.end(), calls.ignored().begin(), calls.ignored().end());
    return whole_answer(calls, spelling, call);
  };
  AnswerGrammar grammar = find(std::move(key), "tools", build);
  if (otherwise.strict) require_enforced(grammar.ignored, otherwise.place);
  for (const Tool& tool : tools.tools) {
    if (tool.strict) require_enforced(grammar.ignored, tool.name + ".parameters");
  }
  return grammar;
}

AnswerGrammar AnswerGrammars::of_optional_calls(const ToolFields& tools,
                                                const AnswerSpelling& spelling) {
  const auto functions = functions_of(tools);
  const auto build = [&](ByteGrammar& rules, Places&) {
    return text::CallGrammar(rules, spelling.format, false).behind_mark(functions, !tools.parallel);
  };
  try {
    AnswerGrammar grammar =
        find(fmt::format("calls {}", tools.parallel) + key_of(functions), "tools", build);
    grammar.of_calls = true;
    return grammar;
  } catch (const ApiError&) {  // too large: the reader decides what is a call
    return {};
  }
}

}  // namespace fasa::serve
