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

// Arguments are always an object, whatever else the schema allows.
ByteGrammar::Rule arguments_of(ByteGrammar& grammar, const Tool& tool, const std::string& place) {
  if (tool.parameters.is_null()) return JsonGrammar(grammar).literal("{}");
  if (tool.parameters.empty()) return JsonGrammar(grammar).object();
  const auto type = tool.parameters.find("type");
  if (type == tool.parameters.end() || *type != "object") {
    throw text::SchemaError(place + ".type", "allowed: \"object\"");
  }
  return SchemaGrammar(grammar, tool.parameters, place).build();
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

}  // namespace

ResponseFormat read_text_format(const RequestFields& format) {
  const std::string type = format.string("type").value_or("");
  if (type == "text") return {};
  if (type == "json_object") return {.kind = ResponseFormat::Kind::kJsonObject};
  if (type != "json_schema") {
    throw ApiError::bad_field(
        format.path_of("type"),
        fmt::format("\"{}\"; allowed: text, json_object, json_schema", type.substr(0, 40)));
  }
  const Json* const schema = format.find("schema");
  if (schema == nullptr) {
    throw ApiError::bad_field(format.path_of("schema"), "missing; allowed: a JSON Schema");
  }
  return {.kind = ResponseFormat::Kind::kJsonSchema, .schema = *schema};
}

ResponseFormat read_response_format(const RequestFields& fields) {
  const auto format = fields.object("response_format");
  if (!format) return {};
  const auto inner = format->object("json_schema");
  if (format->string("type") != "json_schema") return read_text_format(*format);
  if (!inner) {
    throw ApiError::bad_field("response_format.json_schema", "missing; allowed: an object");
  }
  const Json* const schema = inner->find("schema");
  if (schema == nullptr) {
    throw ApiError::bad_field(inner->path_of("schema"), "missing; allowed: a JSON Schema");
  }
  return {.kind = ResponseFormat::Kind::kJsonSchema, .schema = *schema};
}

template <typename Make>
std::shared_ptr<text::TokenGrammar> AnswerGrammars::find(std::string key, Make make) {
  const auto cached = [&]() -> std::shared_ptr<text::TokenGrammar> {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return one.first == key; });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().second;
  };
  {
    const std::lock_guard lock(mutex_);
    if (auto grammar = cached()) return grammar;
  }
  auto grammar = std::make_shared<text::TokenGrammar>(make(), tokens_);
  const std::lock_guard lock(mutex_);
  if (auto other = cached()) return other;  // another thread has compiled the same grammar
  kept_.emplace_front(std::move(key), grammar);
  forget_old();
  return grammar;
}

// Answers in progress keep their grammars.
void AnswerGrammars::forget_old() {
  size_t bytes = 0, count = 0;
  for (auto one = kept_.begin(); one != kept_.end();) {
    bytes += one->first.size() + one->second->bytes();
    const bool goes = count > 0 && (count >= kMaxKept || bytes > kMaxBytes);
    ++count;
    one = goes ? kept_.erase(one) : std::next(one);
  }
}

std::shared_ptr<text::TokenGrammar> AnswerGrammars::of_format(const ResponseFormat& format,
                                                              ThoughtForm thought) {
  const bool any = format.kind == ResponseFormat::Kind::kJsonObject;
  const std::string key =
      fmt::format("{} json {}", static_cast<int>(thought), any ? "" : format.schema.dump());
  return find(key, [&] {
    return build_grammar("response_format", thought, [&](ByteGrammar& grammar) {
      if (any) return JsonGrammar(grammar).object();
      return SchemaGrammar(grammar, format.schema, "schema").build();
    });
  });
}

std::shared_ptr<text::TokenGrammar> AnswerGrammars::of_call(const ToolFields& tools,
                                                            ToolFormat format,
                                                            ThoughtForm thought) {
  std::string key = fmt::format("{} call {}", static_cast<int>(thought), static_cast<int>(format));
  for (const Tool& tool : tools.tools) {
    if (tools.named.empty() || tool.name == tools.named) {
      key += "\n" + tool.name + " " + tool.parameters.dump();
    }
  }
  return find(key, [&] {
    return build_grammar("tools", thought, [&](ByteGrammar& grammar) {
      const CallSpelling spelling = spelling_of(format);
      const ByteGrammar::Rule call = grammar.new_rule();
      for (const Tool& tool : tools.tools) {
        if (!tools.named.empty() && tool.name != tools.named) continue;
        Symbols symbols = grammar.literal(spelling.before + tool.name + spelling.between);
        symbols.push_back(arguments_of(grammar, tool, tool.name + ".parameters"));
        const Symbols end = grammar.literal(spelling.behind);
        symbols.insert(symbols.end(), end.begin(), end.end());
        grammar.add(call, symbols);
      }
      return call;
    });
  });
}

}  // namespace fasa::serve
