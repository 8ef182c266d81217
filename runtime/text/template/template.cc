#include "runtime/text/template/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/utf8.h"
#include "runtime/text/template/evaluator.h"
#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/lexer.h"
#include "runtime/text/template/parser.h"
#include "runtime/text/template/scope.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {
namespace {

// The largest published template has 17 kB.
constexpr size_t kMaxSource = 1u << 20;

std::string location_of(const std::string& name, std::string_view source, uint32_t at) {
  const std::string_view before = source.substr(0, at);
  const size_t line = before.rfind('\n');
  const size_t column = line == std::string_view::npos ? at : at - line - 1;
  return fmt::format("{}:{}:{}", name, std::count(before.begin(), before.end(), '\n') + 1,
                     column + 1);
}

}  // namespace

struct Template::Parts {
  std::string name;
  std::string source;  // with normalized line ends
  Limits limits;
  Body body;
};

Template::Template(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Template Template::parse(std::string_view source, const std::string& name, const Limits& limits) {
  if (source.size() > kMaxSource) {
    throw TemplateError(name, fmt::format("the template has {} bytes; allowed: up to {}",
                                          source.size(), kMaxSource));
  }
  if (!is_valid_utf8(source)) throw TemplateError(name, "the template is not UTF-8");
  auto parts = std::make_unique<Parts>();
  parts->name = name;
  parts->source = normalize_lines(source);
  parts->limits = limits;
  try {
    parts->body = parse_template(parts->source, limits.depth);
  } catch (const SyntaxFailure& failure) {
    throw TemplateError(location_of(name, parts->source, failure.at), failure.message);
  }
  return Template(std::move(parts));
}

MarkedText Template::render(const Context& context) const {
  Work work(parts_->limits);
  Scope variables(nullptr);
  for (const auto& [name, value] : context.variables) variables.set(name, value);
  Scope scope(&variables);
  Evaluator evaluator(work, context.now);
  try {
    return evaluator.run(parts_->body, scope);
  } catch (const Failure& failure) {
    throw TemplateError(location_of(parts_->name, parts_->source, evaluator.at()), failure.what());
  }
}

}  // namespace fasa::jinja
