#include "runtime/eval/tasks/needle_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "runtime/base/require.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kBuiltIn = R"({
  "fact": " The secret number of {key} is {value}. ",
  "question": "\nQuestion: What is the secret number of {key}?)"
                                      R"(\nAnswer: The secret number of {key} is",
  "answer_ends_with": ".",
  "value": {"kind": "digits", "length": 7},
  "keys": ["Amsterdam", "Athens", "Berlin", "Bogota", "Cairo", "Chicago", "Delhi", "Dublin",
           "Geneva", "Hanoi", "Helsinki", "Istanbul", "Jakarta", "Kyoto", "Lagos", "Lima",
           "Lisbon", "Madrid", "Manila", "Nairobi", "Oslo", "Prague", "Quito", "Riga"]
})";

std::string text_of(const JsonFields& fields, const char* key) {
  const auto text = fields.text(key);
  if (!text || text->empty()) fields.fail(key, "a text");
  return *text;
}

std::string filled(std::string text, std::string_view place, std::string_view value) {
  for (size_t at = 0; (at = text.find(place, at)) != std::string::npos; at += value.size()) {
    text.replace(at, place.size(), value);
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

}  // namespace

NeedleTemplate NeedleTemplate::parse(std::string_view json, const std::string& name) {
  const nlohmann::json object = parse_json(json, name);
  const JsonFields fields(object, name);
  NeedleTemplate result;
  result.name_ = name;
  result.hash_ = fmt::format("fnv1a:{:016x}", fnv1a(object.dump()));
  result.statement_ = text_of(fields, "fact");
  result.question_ = text_of(fields, "question");
  result.ends_with_ = text_of(fields, "answer_ends_with");
  if (result.statement_.find("{key}") == std::string::npos ||
      result.statement_.find("{value}") == std::string::npos) {
    fields.fail("fact", "a text that contains {key} and {value}");
  }
  if (result.question_.find("{key}") == std::string::npos) {
    fields.fail("question", "a text that contains {key}");
  }
  if (!fields.has("value")) fields.fail("value", "{\"kind\": \"digits\", \"length\": N}");
  const JsonFields value(fields.at("value"), name, "value.");
  if (value.text("kind") != "digits") value.fail("kind", "\"digits\"");
  result.digits_ = static_cast<int>(value.integer("length", 1, 64));
  if (!fields.has("keys") || !fields.at("keys").is_array()) fields.fail("keys", "a list of texts");
  for (const nlohmann::json& key : fields.at("keys")) {
    if (!key.is_string() || key.get<std::string>().empty()) fields.fail("keys", "a list of texts");
    result.keys_.push_back(key.get<std::string>());
  }
  if (result.keys_.empty()) fields.fail("keys", "at least one key");
  return result;
}

NeedleTemplate NeedleTemplate::load(const std::string& path) {
  return parse(read_file(path), path);
}

NeedleTemplate NeedleTemplate::of_model(const std::string& model_dir) {
  const auto path = std::filesystem::path(model_dir) / "needle.json";
  return std::filesystem::exists(path) ? load(path.string()) : built_in();
}

NeedleTemplate NeedleTemplate::built_in() { return parse(kBuiltIn, "built in"); }

std::string NeedleTemplate::draw_value(std::mt19937_64& random) const {
  std::string value;
  for (int digit = 0; digit < digits_; ++digit) value += static_cast<char>('0' + random() % 10);
  return value;
}

NeedleFact NeedleTemplate::fact(const std::string& key, const std::string& value) const {
  const bool word_before = std::isalnum(static_cast<unsigned char>(question_.back())) != 0;
  return {filled(filled(statement_, "{key}", key), "{value}", value),
          filled(question_, "{key}", key), value, (word_before ? " " : "") + value + ends_with_};
}

std::vector<NeedleFact> NeedleTemplate::draw(int count, std::mt19937_64& random) const {
  require(count <= std::ssize(keys_), "facts", count,
          fmt::format("1 to {}, the number of keys in the template ({})", keys_.size(), name_));
  std::vector<std::string> keys = keys_;
  std::shuffle(keys.begin(), keys.end(), random);
  std::vector<NeedleFact> facts;
  for (int i = 0; i < count; ++i) {
    facts.push_back(fact(keys[static_cast<size_t>(i)], draw_value(random)));
  }
  return facts;
}

bool NeedleTemplate::is_complete(std::string_view answer) const {
  const size_t first = answer.find_first_not_of(kBlanks);
  return first != std::string_view::npos &&
         answer.find(ends_with_, first) != std::string_view::npos;
}

bool NeedleTemplate::is_right(std::string_view answer, std::string_view expected) const {
  return trimmed(answer.substr(0, answer.find(ends_with_))) == expected;
}

}  // namespace fasa
