#include "runtime/text/template/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace fasa::jinja {
namespace {

// Roles that templates insert into a control token, as in "<|" + role + "|>".
constexpr std::string_view kRoles[] = {"assistant", "context", "developer", "documents",
                                       "function",  "ipython", "model",     "observation",
                                       "system",    "tool",    "user"};
constexpr std::string_view kControlTokens[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                               "sep_token", "cls_token", "mask_token"};

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Builds values directly from JSON: nlohmann's own tree is slow for objects with very many members.
class ContextReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  ContextReader(const std::string& name, int depth) : name_(name), depth_(depth) {}

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::of(value)); }
  bool number_integer(int64_t value) override { return add(Value::of(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return add(Value::large(std::to_string(value)));
    return add(Value::of(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& text) override {
    const bool whole = text.find_first_not_of("-0123456789") == std::string::npos;
    return add(whole ? Value::large(text) : Value::of(value));
  }
  bool string(std::string& value) override { return add(text_value(value, origin_of(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool key(std::string& name) override {
    levels_.back().key = name;
    return true;
  }
  bool end_object() override {
    Level level = close();
    if (levels_.empty()) {
      members_ = std::move(level.entries);
      return true;
    }
    return add(Value::Store(std::make_shared<const Dict>(std::move(level.entries))));
  }
  bool end_array() override {
    Level level = close();
    return add(Value::Store(std::make_shared<const List>(ListKind::kList, std::move(level.items))));
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("invalid JSON at byte {}", at));
  }

  std::vector<Dict::Entry> take() { return std::move(members_); }

 private:
  struct Level {
    bool object;
    std::string key;
    std::vector<Dict::Entry> entries;
    std::vector<Value> items;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: {}", name_, what));
  }

  Origin origin_of(const std::string& text) const {
    const bool control =
        levels_.size() == 1 && levels_[0].object && is_among(kControlTokens, levels_[0].key);
    const bool role = levels_.size() == 3 && levels_[0].key == "messages" && levels_[2].object &&
                      levels_[2].key == "role" && is_among(kRoles, text);
    return control || role ? Origin::kTemplate : Origin::kUser;
  }

  bool open(bool object) {
    if (levels_.empty() && !object) fail("the context is not a JSON object");
    if (static_cast<int>(levels_.size()) >= depth_) {
      fail(fmt::format("the context is nested more than {} deep", depth_));
    }
    levels_.push_back({object, "", {}, {}});
    return true;
  }

  Level close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }

  bool add(Value value) {
    if (levels_.empty()) fail("the context is not a JSON object");
    Level& level = levels_.back();
    if (level.object) {
      level.entries.emplace_back(text_value(level.key, Origin::kUser), std::move(value));
    } else {
      level.items.push_back(std::move(value));
    }
    return true;
  }

  const std::string& name_;
  int depth_;
  std::vector<Level> levels_;
  std::vector<Dict::Entry> members_;
};

// Reads digits and a following character from `behind`, which may be missing at the end of the
// text. nullopt: no match.
std::optional<int> take_number(std::string_view* text, size_t digits, std::string_view behind) {
  int value = 0;
  if (text->size() < digits) return std::nullopt;
  const auto read = std::from_chars(text->data(), text->data() + digits, value);
  if (read.ec != std::errc() || read.ptr != text->data() + digits) return std::nullopt;
  text->remove_prefix(digits);
  if (text->empty()) return value;
  if (behind.find(text->front()) == std::string_view::npos) return std::nullopt;
  text->remove_prefix(1);
  return value;
}

// Fills in day of year and weekday; nullopt for a date that does not exist.
std::optional<std::tm> completed(std::tm time) {
  const std::tm wanted = time;
  const std::time_t seconds = timegm(&time);
  if (gmtime_r(&seconds, &time) == nullptr) return std::nullopt;
  if (time.tm_mday != wanted.tm_mday || time.tm_mon != wanted.tm_mon ||
      time.tm_hour != wanted.tm_hour || time.tm_min != wanted.tm_min) {
    return std::nullopt;
  }
  return time;
}

}  // namespace

const Value* Context::find(std::string_view name) const {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& variable) { return variable.first == name; });
  return found == variables.end() ? nullptr : &found->second;
}

void Context::set(std::string_view name, Value value) {
  for (auto& [known, held] : variables) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Value text_value(std::string_view text, Origin origin) {
  return Value::Store(
      std::make_shared<const TextValue>(TextValue{MarkedText(text, origin), false, HeldBytes()}));
}

Context parse_context(std::string_view json, const std::string& name, int depth) {
  ContextReader reader(name, depth);
  if (!nlohmann::json::sax_parse(json, &reader)) {
    throw InputError(fmt::format("{}: the context is not a JSON object", name));
  }
  Context context;
  // A dict keeps the later of two members with the same name.
  const Dict members(reader.take());
  for (const auto& [key, value] : members.entries()) {
    context.variables.emplace_back(key.text()->text.bytes(), value);
  }
  return context;
}

std::tm parse_time(std::string_view text, std::string_view name) {
  std::string_view rest = text;
  std::tm time{};
  const auto year = take_number(&rest, 4, "-");
  const auto month = take_number(&rest, 2, "-");
  const auto day = take_number(&rest, 2, "T ");
  std::optional<std::tm> result;
  if (year && month && day) {
    time.tm_year = *year - 1900;
    time.tm_mon = *month - 1;
    time.tm_mday = *day;
    const bool dated = rest.empty();
    const auto hour = dated ? 0 : take_number(&rest, 2, ":");
    const auto minute = dated ? 0 : take_number(&rest, 2, ":");
    const auto second = rest.empty() ? 0 : take_number(&rest, 2, "");
    if (hour && minute && second && rest.empty() && *second < 60) {
      time.tm_hour = *hour;
      time.tm_min = *minute;
      time.tm_sec = *second;
      result = completed(time);
    }
  }
  if (result) return *result;
  throw UsageError(fmt::format(
      "{} = \"{}\": allowed: a date, or a date and time, such as 2026-11-22 or 2026-11-22T18:30:05",
      name, text));
}

std::tm time_of_epoch(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  return parts;
}

}  // namespace fasa::jinja
