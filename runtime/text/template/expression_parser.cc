#include "runtime/text/template/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace fasa::jinja {
namespace {

using Kind = Expression::Kind;

// Maximum height of a tree, to which brackets and chains of attributes, calls and filters add.
constexpr int kMaxHeight = 128;

template <class... Parts>
std::vector<ExpressionPtr> parts_of(Parts... parts) {
  std::vector<ExpressionPtr> all;
  (all.push_back(std::move(parts)), ...);
  return all;
}

}  // namespace

ExpressionPtr ExpressionParser::make(Kind kind, uint32_t at,
                                     std::vector<ExpressionPtr> parts) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->at = at;
  for (const ExpressionPtr& part : parts) {
    if (part != nullptr) node->height = std::max(node->height, part->height + 1);
  }
  node->parts = std::move(parts);
  if (node->height > kMaxHeight) {
    TokenReader::fail(at, fmt::format("an expression is nested more than {} deep", kMaxHeight));
  }
  return node;
}

ExpressionPtr ExpressionParser::expression() {
  const Nesting nesting(depth_, limit_, tokens_.peek().at);
  ExpressionPtr value = any();
  while (tokens_.at_name("if")) {
    const uint32_t at = tokens_.take().at;
    ExpressionPtr condition = any();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    value = make(Kind::kCondition, at,
                 parts_of(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

bool ExpressionParser::tuple_ends() const {
  return tokens_.at(TokenKind::kVariableEnd) || tokens_.at(TokenKind::kBlockEnd) ||
         tokens_.at_operator(")");
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  const uint32_t at = tokens_.peek().at;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (!tuple_ends()) {
    parts.push_back(with_condition ? expression() : any());
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return make(Kind::kTuple, at, std::move(parts));
  if (parts.empty()) tokens_.fail_expected("an expression");
  return std::move(parts[0]);
}

ExpressionPtr ExpressionParser::chain(Kind kind, std::string_view word,
                                      ExpressionPtr (ExpressionParser::*part)()) {
  const uint32_t at = tokens_.peek().at;
  std::vector<ExpressionPtr> parts = parts_of((this->*part)());
  while (tokens_.skip_name(word)) parts.push_back((this->*part)());
  return parts.size() == 1 ? std::move(parts[0]) : make(kind, at, std::move(parts));
}

ExpressionPtr ExpressionParser::any() { return chain(Kind::kOr, "or", &ExpressionParser::all); }

ExpressionPtr ExpressionParser::all() {
  return chain(Kind::kAnd, "and", &ExpressionParser::negation);
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.at_name("not")) return comparison();
  const Nesting nesting(depth_, limit_, tokens_.peek().at);
  const uint32_t at = tokens_.take().at;
  return make(Kind::kNot, at, parts_of(negation()));
}

std::optional<Comparison> ExpressionParser::comparison_operator() {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kAtMost}, {">", Comparison::kGreater},   {">=", Comparison::kAtLeast}};
  for (const auto& [text, comparison] : kOperators) {
    if (tokens_.skip_operator(text)) return comparison;
  }
  if (tokens_.skip_name("in")) return Comparison::kIn;
  const Token& next = tokens_.peek(1);
  if (!tokens_.at_name("not") || next.kind != TokenKind::kName || next.text != "in") {
    return std::nullopt;
  }
  tokens_.take();
  tokens_.take();
  return Comparison::kNotIn;
}

ExpressionPtr ExpressionParser::comparison() {
  const uint32_t at = tokens_.peek().at;
  std::vector<ExpressionPtr> parts = parts_of(sum());
  std::vector<Comparison> comparisons;
  while (const auto found = comparison_operator()) {
    comparisons.push_back(*found);
    parts.push_back(sum());
  }
  if (comparisons.empty()) return std::move(parts[0]);
  ExpressionPtr node = make(Kind::kCompare, at, std::move(parts));
  node->comparisons = std::move(comparisons);
  return node;
}

ExpressionPtr ExpressionParser::arithmetic(
    ExpressionPtr (ExpressionParser::*part)(),
    const std::vector<std::pair<std::string_view, Arithmetic>>& operators) {
  const uint32_t at = tokens_.peek().at;
  std::vector<ExpressionPtr> parts = parts_of((this->*part)());
  std::vector<Arithmetic> operations;
  const auto next = [&] {
    return std::find_if(operators.begin(), operators.end(),
                        [&](const auto& entry) { return tokens_.at_operator(entry.first); });
  };
  for (auto found = next(); found != operators.end(); found = next()) {
    tokens_.take();
    operations.push_back(found->second);
    parts.push_back((this->*part)());
  }
  if (operations.empty()) return std::move(parts[0]);
  ExpressionPtr node = make(Kind::kArithmetic, at, std::move(parts));
  node->operations = std::move(operations);
  return node;
}

ExpressionPtr ExpressionParser::sum() {
  return arithmetic(&ExpressionParser::concatenation,
                    {{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSubtract}});
}

ExpressionPtr ExpressionParser::concatenation() {
  const uint32_t at = tokens_.peek().at;
  std::vector<ExpressionPtr> parts = parts_of(product());
  while (tokens_.skip_operator("~")) parts.push_back(product());
  return parts.size() == 1 ? std::move(parts[0]) : make(Kind::kConcat, at, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  return arithmetic(&ExpressionParser::power, {{"*", Arithmetic::kMultiply},
                                               {"/", Arithmetic::kDivide},
                                               {"//", Arithmetic::kFloorDivide},
                                               {"%", Arithmetic::kModulo}});
}

ExpressionPtr ExpressionParser::power() {
  return arithmetic(&ExpressionParser::unary, {{"**", Arithmetic::kPower}});
}

ExpressionPtr ExpressionParser::signed_value(bool with_filters) {
  ExpressionPtr value;
  const uint32_t at = tokens_.peek().at;
  if (tokens_.at_operator("-") || tokens_.at_operator("+")) {
    const Nesting nesting(depth_, limit_, at);
    const Kind kind = tokens_.take().text == "-" ? Kind::kNegative : Kind::kPositive;
    value = make(kind, at, parts_of(signed_value(false)));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = tokens_.peek();
  if (token.kind == TokenKind::kText || token.kind == TokenKind::kInteger ||
      token.kind == TokenKind::kFloat) {
    return literal();
  }
  if (tokens_.at_operator("[")) return bracketed_list();
  if (tokens_.at_operator("{")) return braced_dict();
  if (tokens_.skip_operator("(")) {
    const Nesting nesting(depth_, limit_, token.at);
    ExpressionPtr value = tokens_.at_operator(")") ? make(Kind::kTuple, token.at, {}) : tuple(true);
    tokens_.expect_operator(")");
    return value;
  }
  if (token.kind != TokenKind::kName) tokens_.fail_expected("an expression");
  tokens_.take();
  ExpressionPtr node = make(Kind::kConstant, token.at, {});
  if (token.text == "true" || token.text == "True") {
    node->constant = Value::of(true);
  } else if (token.text == "false" || token.text == "False") {
    node->constant = Value::of(false);
  } else if (token.text == "none" || token.text == "None") {
    node->constant = Value::none();
  } else {
    node->kind = Kind::kName;
    node->name = token.text;
    uses.caller |= token.text == "caller";
    uses.varargs |= token.text == "varargs";
    uses.kwargs |= token.text == "kwargs";
  }
  return node;
}

ExpressionPtr ExpressionParser::literal() {
  const Token token = tokens_.take();
  ExpressionPtr node = make(Kind::kConstant, token.at, {});
  const char* const end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::kText) {
    std::string text = token.text;
    while (tokens_.at(TokenKind::kText)) text += tokens_.take().text;
    node->constant = Value::Store(std::make_shared<const TextValue>(
        TextValue{MarkedText(text, Origin::kTemplate), false, HeldBytes()}));
  } else if (token.kind == TokenKind::kInteger) {
    int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
      TokenReader::fail(token.at, fmt::format("{} exceeds 64 bits", token.text));
    }
    node->constant = Value::of(value);
  } else {
    double value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
      TokenReader::fail(token.at, fmt::format("{} does not fit a 64-bit number", token.text));
    }
    node->constant = Value::of(value);
  }
  return node;
}

ExpressionPtr ExpressionParser::bracketed_list() {
  const uint32_t at = tokens_.take().at;
  const Nesting nesting(depth_, limit_, at);
  std::vector<ExpressionPtr> parts;
  while (!tokens_.at_operator("]")) {
    parts.push_back(expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  return make(Kind::kList, at, std::move(parts));
}

ExpressionPtr ExpressionParser::braced_dict() {
  const uint32_t at = tokens_.take().at;
  const Nesting nesting(depth_, limit_, at);
  std::vector<ExpressionPtr> parts;
  while (!tokens_.at_operator("}")) {
    parts.push_back(expression());
    tokens_.expect_operator(":");
    parts.push_back(expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return make(Kind::kDict, at, std::move(parts));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.at_operator(".")) {
      value = attribute(std::move(value));
    } else if (tokens_.at_operator("[")) {
      value = item(std::move(value));
    } else if (tokens_.at_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value) {
  while (true) {
    if (tokens_.skip_operator("|")) {
      value = filter(std::move(value));
    } else if (tokens_.at_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.at_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

std::string ExpressionParser::dotted_name(std::string_view what) {
  std::string name = tokens_.expect_name(what);
  while (tokens_.skip_operator(".")) {
    name += '.';
    name += tokens_.expect_name("a name");
  }
  return name;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  const uint32_t at = tokens_.peek().at;
  std::string name = dotted_name("a filter's name");
  ExpressionPtr node = make(Kind::kFilter, at, parts_of(std::move(value)));
  node->name = std::move(name);
  if (tokens_.at_operator("(")) node->arguments = arguments();
  return node;
}

ExpressionPtr ExpressionParser::block_filters() {
  ExpressionPtr value = make(Kind::kBlockText, tokens_.peek().at, {});
  do {
    value = filter(std::move(value));
  } while (tokens_.skip_operator("|"));
  return value;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const uint32_t at = tokens_.take().at;
  const bool negated = tokens_.skip_name("not");
  ExpressionPtr node = make(Kind::kTest, at, parts_of(std::move(value)));
  node->name = dotted_name("a test's name");
  const Token& next = tokens_.peek();
  const bool other_word = next.kind == TokenKind::kName &&
                          (next.text == "else" || next.text == "or" || next.text == "and");
  if (tokens_.at_operator("(")) {
    node->arguments = arguments();
  } else if (tokens_.at_name("is")) {
    TokenReader::fail(next.at, "tests cannot be chained");
  } else if (!other_word && (next.kind == TokenKind::kName || next.kind == TokenKind::kText ||
                             next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
                             tokens_.at_operator("[") || tokens_.at_operator("{"))) {
    node->arguments.push_back({"", postfix(primary())});
  }
  return negated ? make(Kind::kNot, at, parts_of(std::move(node))) : std::move(node);
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr value) {
  tokens_.take();
  const Token token = tokens_.peek();
  if (token.kind == TokenKind::kInteger) {
    ExpressionPtr key = literal();
    return make(Kind::kItem, token.at, parts_of(std::move(value), std::move(key)));
  }
  if (token.kind != TokenKind::kName) tokens_.fail_expected("a name or a number");
  tokens_.take();
  ExpressionPtr node = make(Kind::kAttribute, token.at, parts_of(std::move(value)));
  node->name = token.text;
  return node;
}

ExpressionPtr ExpressionParser::item(ExpressionPtr value) {
  const uint32_t at = tokens_.take().at;
  const Nesting nesting(depth_, limit_, at);
  std::vector<ExpressionPtr> bounds(1);
  size_t colons = 0;
  while (!tokens_.at_operator("]") && !tokens_.at_operator(",")) {
    if (tokens_.skip_operator(":")) {
      if (++colons > 2) TokenReader::fail(at, "a slice has at most three parts");
      bounds.emplace_back();
    } else if (bounds.back() != nullptr) {
      tokens_.fail_expected("\"]\"");
    } else {
      bounds.back() = expression();
    }
  }
  if (tokens_.at_operator(",")) TokenReader::fail(at, "a subscript takes only one key");
  tokens_.expect_operator("]");
  if (colons == 0 && bounds[0] == nullptr) TokenReader::fail(at, "the brackets are empty");
  if (colons == 0) return make(Kind::kItem, at, parts_of(std::move(value), std::move(bounds[0])));
  bounds.resize(3);
  return make(
      Kind::kSlice, at,
      parts_of(std::move(value), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  const uint32_t at = tokens_.peek().at;
  ExpressionPtr node = make(Kind::kCall, at, parts_of(std::move(callee)));
  node->arguments = arguments();
  return node;
}

std::vector<Argument> ExpressionParser::arguments() {
  const uint32_t at = tokens_.take().at;
  const Nesting nesting(depth_, limit_, at);
  std::vector<Argument> arguments;
  while (!tokens_.at_operator(")")) {
    Argument argument;
    if (tokens_.at_operator("*") || tokens_.at_operator("**")) {
      TokenReader::fail(tokens_.peek().at, "unpacking arguments with * is not supported");
    }
    const Token& next = tokens_.peek(1);
    if (tokens_.at(TokenKind::kName) && next.kind == TokenKind::kOperator && next.text == "=") {
      argument.name = tokens_.take().text;
      tokens_.take();
    } else if (!arguments.empty() && !arguments.back().name.empty()) {
      TokenReader::fail(tokens_.peek().at,
                        "positional arguments must come before keyword arguments");
    }
    argument.value = expression();
    arguments.push_back(std::move(argument));
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
  return arguments;
}

Target ExpressionParser::target(bool members) {
  const Nesting nesting(depth_, limit_, tokens_.peek().at);
  Target tuple{.at = tokens_.peek().at, .name = "", .member = "", .parts = {}};
  bool is_tuple = false;
  do {
    Target part{.at = tokens_.peek().at, .name = "", .member = "", .parts = {}};
    if (tokens_.at_operator("=") || tokens_.at_name("in")) break;
    if (tokens_.skip_operator("(")) {
      part = target(members);
      tokens_.expect_operator(")");
    } else {
      part.name = tokens_.expect_name("a name");
      if (members && tokens_.skip_operator(".")) part.member = tokens_.expect_name("a name");
      for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
        if (part.name == word) TokenReader::fail(part.at, "a constant cannot be assigned a value");
      }
    }
    tuple.parts.push_back(std::move(part));
    is_tuple |= tokens_.at_operator(",");
  } while (tokens_.skip_operator(","));
  if (tuple.parts.empty()) tokens_.fail_expected("a name");
  return is_tuple ? std::move(tuple) : std::move(tuple.parts[0]);
}

}  // namespace fasa::jinja
