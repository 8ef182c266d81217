// Error for a JSON Schema that cannot be converted to a grammar.
#pragma once

#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace fasa::text {

// "PLACE: what was given; allowed: ...".
class SchemaError : public InputError {
 public:
  SchemaError(std::string place, const std::string& message)
      : InputError(place + ": " + message), place_(std::move(place)) {}
  // The keyword's path: "schema.properties.age.pattern".
  const std::string& place() const { return place_; }

 private:
  std::string place_;
};

}  // namespace fasa::text
