#include "runtime/text/template/functions/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include "runtime/base/utf8.h"
#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {
namespace {

using FunctionBody = Value (*)(const Arguments& arguments, const std::tm& now, Work& work);

Value range(const Arguments& arguments, const std::tm&, Work& work) {
  constexpr int64_t kLongest = 100'000;  // as in Jinja's sandbox
  const Bound bound("range", arguments, {"start", "stop", "step"});
  const int64_t first = bound.has(1) ? bound.integer_or(0, 0) : 0;
  const int64_t last = bound.has(1) ? bound.integer_or(1, 0) : bound.integer_or(0, 0);
  const int64_t step = bound.integer_or(2, 1);
  static_cast<void>(bound.at(0));
  if (step == 0) throw Failure("range: the step is 0");
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    if (static_cast<int64_t>(items.size()) == kLongest) {
      throw Failure(fmt::format("range has more than {} items", kLongest));
    }
    items.push_back(Value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return work.list(std::move(items), ListKind::kRange);
}

// Entries of a dict passed as positional argument, then entries passed by name.
std::vector<Dict::Entry> entries_of(std::string_view callee, const Arguments& arguments,
                                    Work& work) {
  std::vector<Dict::Entry> entries;
  if (!arguments.by_place.empty()) {
    const Dict* dict = arguments.by_place[0].dict();
    if (dict == nullptr || arguments.by_place.size() > 1) {
      throw Failure(fmt::format("{} takes one dict and keyword arguments", callee));
    }
    entries = dict->entries();
  }
  for (const auto& [name, value] : arguments.by_name) entries.emplace_back(work.text(name), value);
  return entries;
}

Value make_namespace(const Arguments& arguments, const std::tm&, Work& work) {
  auto members = std::make_shared<Namespace>();
  for (const auto& [name, value] : entries_of("namespace", arguments, work)) {
    if (!name.is_text()) throw Failure("namespace: a name is not a string");
    set_member(*members, name.text()->text.bytes(), value);
  }
  return Value::Store(std::move(members));
}

Value make_dict(const Arguments& arguments, const std::tm&, Work& work) {
  for (const auto& [name, value] : arguments.by_name) {
    if (refers_to_scope(value))
      throw Failure(fmt::format("a dict cannot hold a {}", value.type_name()));
  }
  return work.dict(entries_of("dict", arguments, work));
}

Value raise_exception(const Arguments& arguments, const std::tm&, Work& work) {
  const Bound bound("raise_exception", arguments, {"message"});
  throw Failure(str_of(bound.at(0), work).bytes());
}

// datetime.strftime of a time without a zone.
Value strftime_now(const Arguments& arguments, const std::tm& now, Work& work) {
  constexpr size_t kLongest = 256;
  const Bound bound("strftime_now", arguments, {"format"});
  const std::string& given = bound.text(0).text.bytes();
  if (given.size() > kLongest) {
    throw Failure(fmt::format("strftime_now: the format has more than {} bytes", kLongest));
  }
  std::string format;
  for (size_t at = 0; at < given.size(); ++at) {
    const char next = at + 1 < given.size() ? given[at + 1] : '\0';
    if (given[at] == '%' && (next == 'f' || next == 'z' || next == 'Z')) {
      format += next == 'f' ? "000000" : "";
      ++at;
    } else {
      format += given[at];
      if (given[at] == '%' && next == '%') format += given[++at];
    }
  }
  format += ' ';  // an empty result could not be told from a buffer that is too small
  char text[4096];
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &now);
  if (size == 0) throw Failure("strftime_now: the result is too long");
  const std::string_view result(text, size - 1);
  if (!is_valid_utf8(result)) throw Failure("strftime_now: the format ends within a character");
  return work.text(result);
}

struct Entry {
  std::string_view name;
  FunctionBody body;
};
constexpr Entry kFunctions[] = {{"dict", make_dict},
                                {"namespace", make_namespace},
                                {"raise_exception", raise_exception},
                                {"range", range},
                                {"strftime_now", strftime_now}};
constexpr std::string_view kUnknown[] = {"cycler", "joiner", "lipsum"};

}  // namespace

std::optional<Function> find_function(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                   [&](const Entry& entry) { return entry.name == name; });
  if (found != std::end(kFunctions)) return Function{static_cast<int>(found - kFunctions)};
  if (std::find(std::begin(kUnknown), std::end(kUnknown), name) != std::end(kUnknown)) {
    throw Failure(fmt::format("the function {} is not supported", name));
  }
  return std::nullopt;
}

Value call_function(const Function& function, const Arguments& arguments, const std::tm& now,
                    Work& work) {
  return kFunctions[function.index].body(arguments, now, work);
}

bool refers_to_scope(const Value& value) {
  return value.name_space() != nullptr || value.macro() != nullptr || value.loop() != nullptr;
}

void set_member(Namespace& members, std::string_view name, const Value& value) {
  if (name.starts_with('_')) {
    throw Failure(fmt::format("names in a namespace may not begin with _; given: {}", name));
  }
  if (refers_to_scope(value)) {
    throw Failure(fmt::format("a namespace cannot hold a {}", value.type_name()));
  }
  members.set(name, value);
}

}  // namespace fasa::jinja
