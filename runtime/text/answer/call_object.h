// Reads a call that is one JSON object: {"name": NAME, "arguments": {...}}, members in any order.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/text/answer/argument_reader.h"
#include "runtime/text/answer/value_reader.h"

namespace fasa::text {

// "parameters" and "arguments" are synonyms; arguments may be a text that holds JSON, or null.
// They are passed on as soon as the name is known. Not thread-safe.
class CallObject {
 public:
  // Both must outlive the reader.
  CallObject(const CallFormat& format, const std::vector<CallableFunction>& functions)
      : format_(format), functions_(functions) {}

  // Takes what it reads from the beginning of `text`.
  ArgumentReader::Progress read(std::string& text);
  // The function may be called, and there is an object of arguments, or none at all.
  bool named() const { return function_ != nullptr; }
  const std::string& name() const { return function_->name; }
  // All arguments were read.
  bool complete() const { return complete_; }
  // The JSON of the arguments since the last call.
  std::string take() { return named() ? std::exchange(json_, {}) : ""; }

 private:
  enum class Place { kBegin, kKey, kColon, kValue, kInValue, kNext };
  enum class State { kOpen, kDone, kFailed };
  static constexpr size_t kMaxHead = 64 << 10;  // bytes before the name is known

  State push(char byte);
  State begin_value(char byte);
  State in_value(char byte);
  State end_value();
  State in_key(char byte);
  bool is_arguments() const;

  const CallFormat& format_;
  const std::vector<CallableFunction>& functions_;
  const CallableFunction* function_ = nullptr;
  Place place_ = Place::kBegin;
  ValueReader reader_;  // of the key or value
  std::string key_, value_;
  std::string json_;
  size_t size_ = 0;
  bool streams_ = false;  // the value is the object of arguments
  bool has_arguments_ = false;
  bool complete_ = false;
};

}  // namespace fasa::text
