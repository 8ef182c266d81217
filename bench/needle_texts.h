// Texts with planted facts for the bundled model: what it was taught to store and recall
// (models/needle-3m/needle.json).
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::bench {

struct NeedleText {
  std::string text;  // facts planted, no questions
  struct Question {
    std::string suffix;  // "\n?α"
    std::string answer;  // five digits
  };
  std::vector<Question> questions;
};

// `bytes` of `source` from `offset` on, cut at a line's start as far as that goes, with `facts`
// facts in it, spread evenly with a random shift.
inline NeedleText plant_facts(std::string_view source, size_t offset, size_t bytes, int facts,
                              uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> letters;
  for (int letter = 0x3b1; letter <= 0x3c9; ++letter) {
    if (letter != 0x3c2) letters.push_back(letter);  // final sigma is no key
  }
  std::shuffle(letters.begin(), letters.end(), random);
  NeedleText result;
  size_t copied = offset;
  for (int i = 0; i < facts; ++i) {
    const int letter = letters[static_cast<size_t>(i)];
    const std::string key = {static_cast<char>(0xc0 | (letter >> 6)),
                             static_cast<char>(0x80 | (letter & 63))};
    std::string value;
    for (int digit = 0; digit < 5; ++digit) value += static_cast<char>('0' + random() % 10);
    const auto count = static_cast<size_t>(facts);
    const size_t stretch = bytes / count;
    const size_t at = offset + static_cast<size_t>(i) * stretch + random() % stretch;
    result.text += source.substr(copied, at - copied);
    copied = at;
    result.text += "\n[" + key + value + "]\n";
    result.questions.push_back({"\n?" + key, value});
  }
  result.text += source.substr(copied, offset + bytes - copied);
  std::shuffle(result.questions.begin(), result.questions.end(), random);
  return result;
}

}  // namespace fasa::bench
