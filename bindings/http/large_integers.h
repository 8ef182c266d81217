// Whole numbers beyond 64 bits, which nlohmann's values would round to floats: models write them in
// arguments of calls, and clients send these back.
#pragma once

#include <string>
#include <string_view>

namespace fasa::serve {

// JSON with such numbers as texts of their digits between marks.
std::string with_marked_integers(std::string_view json);
// The same text with the numbers again, also where the JSON is a text within JSON.
std::string without_marked_integers(std::string json);

}  // namespace fasa::serve
