// Words that generated tasks draw from.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace fasa {

// `count` different names in random order, such as "quiet harbor"; from 10,000 on of three words.
std::vector<std::string> draw_names(size_t count, std::mt19937_64& random);
// `count` different names of people, at most 576.
std::vector<std::string> draw_people(size_t count, std::mt19937_64& random);
// `count` different single words, at most 200.
std::vector<std::string> draw_words(size_t count, std::mt19937_64& random);

// The same on every machine, unlike the standard library's distributions.
size_t draw_below(size_t end, std::mt19937_64& random);
template <typename Item>
void shuffle(std::vector<Item>& items, std::mt19937_64& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[draw_below(i, random)]);
}

std::string draw_digits(int count, std::mt19937_64& random);  // the first is not 0
std::string draw_letters(int count, char first, std::mt19937_64& random);
std::string draw_uuid(std::mt19937_64& random);  // version 4, lower case

}  // namespace fasa
