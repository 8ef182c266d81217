// Syntax tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/template/operators.h"
#include "runtime/text/template/value.h"

namespace fasa::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string name;  // "": positional
  ExpressionPtr value;
};

// Operators of one precedence in a row form one node, so only brackets add depth.
struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kName,        // name
    kList,        // parts
    kTuple,       // parts
    kDict,        // parts: key, value, key, value...
    kCondition,   // parts: condition, then, otherwise (may be null)
    kOr,          // parts
    kAnd,         // parts
    kNot,         // parts: one
    kCompare,     // parts, one more than comparisons
    kArithmetic,  // parts, one more than operations; from left to right
    kConcat,      // parts
    kNegative,    // parts: one
    kPositive,    // parts: one
    kAttribute,   // parts: object; name
    kItem,        // parts: object, key
    kSlice,       // parts: object, begin, end, step (may be null)
    kCall,        // parts: callee; arguments
    kFilter,      // parts: value; name, arguments
    kTest,        // parts: value; name, arguments
    kBlockText,   // output of a set block or filter block
  };

  Kind kind = Kind::kConstant;
  uint32_t at = 0;  // offset in the source
  int height = 1;   // of the tree
  Value constant;
  std::string name;
  std::vector<ExpressionPtr> parts;
  std::vector<Argument> arguments;
  std::vector<Arithmetic> operations;
  std::vector<Comparison> comparisons;
};

// Target of an assignment.
struct Target {
  uint32_t at = 0;
  std::string name;
  std::string member;         // member of the namespace `name`; "": the variable itself
  std::vector<Target> parts;  // of a tuple, which has no name
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // may be null
};

// A macro, or the body of a call block.
struct MacroDefinition {
  uint32_t at = 0;
  std::string name;
  std::vector<Parameter> parameters;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,         // text
    kOutput,       // expression
    kIf,           // branches
    kFor,          // target, expression, condition (may be null), body, otherwise
    kSet,          // target, expression
    kSetBlock,     // target, expression over kBlockText, body
    kFilterBlock,  // expression over kBlockText, body
    kMacro,        // macro, body
    kCallBlock,    // expression (a call), macro (its caller), body
    kGeneration,   // body
    kBreak,
    kContinue,
  };

  Kind kind = Kind::kText;
  uint32_t at = 0;
  std::string text;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Target target;
  std::vector<Branch> branches;
  Body body;
  Body otherwise;
  std::unique_ptr<MacroDefinition> macro;
};

}  // namespace fasa::jinja
