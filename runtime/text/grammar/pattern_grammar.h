// The grammar of JSON strings whose text matches a regular expression of a JSON Schema.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/grammar/json_grammar.h"

namespace fasa::text {

// Characters, ".", classes, \d \w \s and their opposites, groups, alternatives, repetitions, and ^
// and $ at the ends of an alternative. Lookaround, back references, word boundaries and flags are
// an error, and so are repetitions of what may be empty. A character has one spelling in the
// grammar. Throws SchemaError; `place`: the pattern's name in errors.
ByteGrammar::Rule pattern_rule(ByteGrammar& grammar, std::string_view pattern,
                               const std::string& place);

}  // namespace fasa::text
