// Reads the JSON object of a tool call as it comes, byte by byte.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fasa::serve {

// {"name": NAME, "arguments": {...}} with members in any order; "parameters" is the same as
// "arguments". What the arguments spell goes out as it is spelt, as soon as the name is known. Not
// thread-safe.
class CallScanner {
 public:
  // `names`: what may be called; they outlive the scanner.
  explicit CallScanner(const std::vector<std::string>& names) : names_(&names) {}
  // Where the name has been read: what comes is the arguments' object alone.
  CallScanner(const std::vector<std::string>& names, std::string name)
      : names_(&names),
        place_(Place::kValue),
        key_("arguments"),
        name_(std::move(name)),
        named_(true),
        bare_(true) {}

  enum class State { kOpen, kDone, kFailed };
  // One more byte. It belongs to the object unless the scanner failed at it.
  State push(char byte);

  bool named() const { return named_; }  // the name is known, and is one that may be called
  const std::string& name() const { return name_; }
  // The arguments' text since the last call of this.
  std::string take_arguments();
  // All bytes so far, where the object turns out to be no call.
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
  std::string arguments_;   // not taken yet
  std::string brackets_;    // of the value, those that are open
  bool in_string_ = false;  // of the value
  bool escaped_ = false;    // of the string
  bool named_ = false;
  bool has_arguments_ = false;
  bool spelt_as_string_ = false;  // the arguments: a string that holds JSON
  bool bare_ = false;             // the arguments are all there is
};

}  // namespace fasa::serve
