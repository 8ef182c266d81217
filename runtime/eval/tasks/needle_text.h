// A text with facts planted in it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/tasks/needle_template.h"

namespace fasa {

struct PlantedFact {
  NeedleFact fact;
  size_t at = 0;  // bytes of the haystack before it
};

// The haystack with the facts' statements in it. Facts at the same position keep their order.
std::string plant(std::string_view haystack, std::span<const PlantedFact> facts);

// The position at or before byte `at` where a word with its blank begins, so that no word is cut;
// `at` itself if there is none within 256 bytes.
size_t word_start(std::string_view text, size_t at);

}  // namespace fasa
