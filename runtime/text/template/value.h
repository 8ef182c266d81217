// A value of a template, with the kinds and semantics of Python's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/text/template/functions/marked_text.h"
#include "runtime/text/template/limits.h"

namespace fasa::jinja {

class Dict;
class List;
class Loop;
class Macro;
class Namespace;
struct Method;
struct TextValue;

// An undefined value, with the name looked up, for errors.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};
// A built-in function, by its index in the table of functions.
struct Function {
  int index = 0;
};

// A whole number beyond int64_t.
struct LargeInteger {
  std::string digits;  // as it was written
  long double number;  // the nearest one
};

// Small and cheap to copy. Its contents are immutable, except namespaces, loops and iterators, and
// never refer back to the value.
class Value {
 public:
  using Store =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const TextValue>,
                   std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                   std::shared_ptr<Namespace>, std::shared_ptr<const Macro>,
                   std::shared_ptr<const Method>, std::shared_ptr<const Loop>, Function,
                   std::shared_ptr<const LargeInteger>>;

  Value() = default;  // undefined
  Value(Store store) : store_(std::move(store)) {}
  static Value none() { return Value(Store(None{})); }
  static Value of(bool value) { return Value(Store(value)); }
  static Value of(int64_t value) { return Value(Store(value)); }
  static Value of(double value) { return Value(Store(value)); }
  // A whole number beyond int64_t: it is written as it is; sums of it are floats.
  static Value large(std::string digits);
  static Value undefined(std::string why) {
    return Value(Store(Undefined{std::make_shared<const std::string>(std::move(why))}));
  }

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_integer() const { return holds<int64_t>(); }  // and not a bool
  bool is_float() const { return holds<double>(); }
  bool is_number() const { return is_bool() || is_integer() || is_float() || large(); }
  bool is_text() const { return text() != nullptr; }

  // Null if the value is of another kind. Valid while the value exists.
  const TextValue* text() const { return object<const TextValue>(); }
  const List* list() const { return object<const List>(); }
  const Dict* dict() const { return object<const Dict>(); }
  Namespace* name_space() const { return object<Namespace>(); }
  const Macro* macro() const { return object<const Macro>(); }
  const Method* method() const { return object<const Method>(); }
  const Loop* loop() const { return object<const Loop>(); }
  const Function* function() const { return std::get_if<Function>(&store_); }
  const bool* boolean() const { return std::get_if<bool>(&store_); }
  const LargeInteger* large() const { return object<const LargeInteger>(); }

  // The value of an integer, or of a bool, which Python treats as an integer.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;
  // Python's name of the type, for errors.
  std::string_view type_name() const;
  const std::string& why_undefined() const;
  const Store& store() const { return store_; }
  int depth() const;  // nesting of lists and dicts; 0: neither

 private:
  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(store_);
  }
  template <class T>
  T* object() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&store_);
    return held == nullptr ? nullptr : held->get();
  }

  Store store_;
};

struct TextValue {
  MarkedText text;
  bool markup = false;  // set by the filter `safe`: text added to it is escaped, as in Markup
  HeldBytes held;
};

enum class ListKind : uint8_t {
  kList,
  kTuple,
  kIterator,  // a generator: always true, no length, can be iterated once
  kView,      // of a dict: has a length, no indexes
  kRange,
};

class List {
 public:
  List(ListKind kind, std::vector<Value> items, HeldBytes held = {});
  ListKind kind() const { return kind_; }
  bool has_places() const { return kind_ != ListKind::kIterator && kind_ != ListKind::kView; }
  // Takes the remaining items of an iterator, which is then empty.
  std::vector<Value> take() const;
  const std::vector<Value>& items() const { return items_; }  // not for iterators
  int depth() const { return depth_; }

 private:
  ListKind kind_;
  mutable std::vector<Value> items_;
  int depth_;
  HeldBytes held_;
};

// In order of insertion. Keys are texts, numbers or none (is_key).
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // All keys must satisfy is_key. A repeated key keeps its position and takes the later value.
  explicit Dict(std::vector<Entry> entries, HeldBytes held = {});
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  int depth() const { return depth_; }

 private:
  std::optional<size_t> place(const Value& key) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> texts_;  // key texts -> indexes
  int depth_ = 1;
  HeldBytes held_;
};

class Namespace {
 public:
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> members_;
};

// A method of a text or dict, not yet called.
struct Method {
  Value object;
  std::string name;
};

// The variable `loop` in the body of a for.
class Loop {
 public:
  explicit Loop(std::vector<Value> items) : items_(std::move(items)) {}
  const std::vector<Value>& items() const { return items_; }
  size_t index() const { return index_; }  // from 0
  void advance() { ++index_; }

 private:
  std::vector<Value> items_;
  size_t index_ = 0;
};

bool truth(const Value& value);
// Whether a dict accepts the value as a key. Python also accepts tuples; no known template needs
// it.
bool is_key(const Value& value);
// Python's equality for values that satisfy is_key: 1 == 1.0 == True.
bool equal_keys(const Value& a, const Value& b);

}  // namespace fasa::jinja
