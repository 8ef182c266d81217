// Reads the arguments of a call as a format spells them, and writes them as a JSON object.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/answer/answer_format.h"

namespace fasa::text {

struct CallableFunction {
  std::string name;
  nlohmann::ordered_json parameters = nullptr;  // JSON Schema; null: none
};

// Null for an unknown name.
const CallableFunction* find_function(const std::vector<CallableFunction>& functions,
                                      std::string_view name);

// The JSON grows while the text is read. Not thread-safe.
class ArgumentReader {
 public:
  enum class Progress {
    kMore,    // the text ends within the arguments
    kDone,    // they are complete
    kFailed,  // the text's first byte cannot stand here
  };
  virtual ~ArgumentReader() = default;

  // Takes what it reads from the beginning of `text`. `over`: no more text follows.
  virtual Progress read(std::string& text, bool over) = 0;
  // Enough was read to know that these are arguments.
  bool begun() const { return begun_; }
  // The JSON since the last call.
  std::string take() { return std::exchange(json_, {}); }

 protected:
  bool begun_ = false;
  std::string json_;
};

// The function outlives the reader.
std::unique_ptr<ArgumentReader> make_argument_reader(const CallFormat& format,
                                                     const CallableFunction& function);

}  // namespace fasa::text
