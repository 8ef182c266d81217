// Parses the JSON object of a tool call incrementally, byte by byte.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fasa::serve {

// Accepts {"name": NAME, "arguments": {...}} with members in any order; "parameters" is a synonym
// of "arguments". Arguments are passed on as soon as the name is known. Not thread-safe.
class CallScanner {
 public:
  // `names`: the functions that may be called; must outlive the scanner.
  explicit CallScanner(const std::vector<std::string>& names) : names_(&names) {}
  // For a name that has been read already: only the arguments' object follows.
  CallScanner(const std::vector<std::string>& names, std::string name)
      : names_(&names),
        place_(Place::kValue),
        key_("arguments"),
        name_(std::move(name)),
        named_(true),
        bare_(true) {}

  enum class State { kOpen, kDone, kFailed };
  // Adds one byte. It is part of the object unless the scanner fails at it.
  State push(char byte);

  bool named() const { return named_; }  // the name is known and may be called
  const std::string& name() const { return name_; }
  // The arguments' text since the last call.
  std::string take_arguments();
  // All bytes so far, for when the object is not a call.
  const std::string& raw() const { return raw_; }

 private:
  enum class Place { kBegin, kKey, kInKey, kColon, kValue, kInValue, kComma };

  State step(char byte);
  State begin_value(char byte);
  State in_value(char byte);
  State end_value();
  void add_argument(char byte);

  const std::vector<std::string>* names_;
  State state_ = State::kOpen;
  Place place_ = Place::kBegin;
  std::string raw_, key_, value_, name_;
  std::string arguments_;   // not yet taken
  std::string brackets_;    // open brackets of the value
  bool in_string_ = false;  // within the value
  bool escaped_ = false;    // within the string
  bool named_ = false;
  bool has_arguments_ = false;
  bool spelt_as_string_ = false;  // the arguments are a string that holds JSON
  bool bare_ = false;             // the object is the arguments alone
};

}  // namespace fasa::serve
