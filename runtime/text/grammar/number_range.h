// The grammar of decimal numbers between two bounds.
#pragma once

#include <optional>

#include "runtime/text/grammar/byte_grammar.h"

namespace fasa::text {

struct NumberBound {
  double value = 0;
  bool exclusive = false;
};

// Numbers without exponent, of at most 15 digits on each side of the point. Nothing if a bound has
// more digits, or if no such number lies between the bounds.
std::optional<ByteGrammar::Rule> number_range(ByteGrammar& grammar,
                                              std::optional<NumberBound> least,
                                              std::optional<NumberBound> most);

}  // namespace fasa::text
