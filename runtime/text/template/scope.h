// Variables, and macros with the scope of their definition.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/template/ast.h"
#include "runtime/text/template/value.h"

namespace fasa::jinja {

// Names are views into the template or the context, which must outlive it.
class Scope {
 public:
  explicit Scope(const Scope* parent) : parent_(parent) {}
  Scope(const Scope&) = delete;  // inner scopes and macros refer to it
  Scope& operator=(const Scope&) = delete;

  void set(std::string_view name, Value value) {
    for (auto& [known, held] : variables_) {
      if (known != name) continue;
      held = std::move(value);
      return;
    }
    variables_.emplace_back(name, std::move(value));
  }
  // Searches this scope and the enclosing ones; null: not found.
  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      for (const auto& [known, value] : scope->variables_) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }

 private:
  const Scope* parent_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

// A kMacro or kCallBlock statement with its scope. Never outlives that scope: no longer-lived value
// can hold it.
class Macro {
 public:
  Macro(const Statement& statement, const Scope& scope) : statement_(statement), scope_(scope) {}
  const MacroDefinition& definition() const { return *statement_.macro; }
  const Body& body() const { return statement_.body; }
  const Scope& scope() const { return scope_; }

 private:
  const Statement& statement_;
  const Scope& scope_;
};

}  // namespace fasa::jinja
