#include "runtime/eval/tasks/word_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

namespace fasa {
namespace {

constexpr std::string_view kAdjectives =
    "amber ancient autumn bitter blue bold brave bright broken bronze calm careful cheerful "
    "clear clever cloudy cold copper crimson curious dark deep distant dusty eager early eastern "
    "empty faded fair famous fearless fierce fresh frozen gentle golden grand gray green happy "
    "hidden hollow honest hungry icy idle iron ivory jolly kind late lazy lively lonely long "
    "loud lucky mellow mighty modern narrow noble northern odd old orange pale patient plain "
    "polite proud purple quick quiet rapid rare red restless rough royal rusty salty sandy "
    "scarlet secret sharp shy silent silver simple sleepy slow small smooth snowy soft southern "
    "spicy steady";
constexpr std::string_view kNouns =
    "anchor apple arrow badger barrel basket beacon bell bench bottle branch bridge brook bucket "
    "butter button cabin camel candle canoe carpet castle cedar chapel cherry circle clock cloud "
    "coffee comet copper corner cradle crane crystal curtain daisy desert dragon drum eagle echo "
    "engine falcon feather ferry fiddle field finch flute forest fountain fox garden gate "
    "glacier grove hammer harbor hazel helmet heron hill island jacket jungle kettle kitten "
    "ladder lagoon lantern lemon lizard magnet maple marble meadow mirror monkey mountain needle "
    "oak ocean orchard otter oven owl paddle palace parrot pebble pepper pigeon pillow pine "
    "planet pocket pony quill raven";
constexpr std::string_view kFirstNames =
    "Ada Bruno Clara Dario Elena Felix Greta Hugo Iris Jonas Klara Leo Mira Nils Olga Paul Rosa "
    "Simon Tara Udo Vera Willem Yara Zeno";
constexpr std::string_view kLastNames =
    "Adler Becker Costa Dahl Ekman Fischer Garcia Holm Ivanov Jansen Keller Lind Moreno Novak "
    "Olsen Petrov Quist Reyes Silva Toth Ulrich Vance Weber Zhang";
std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> list;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    list.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

// `count` different numbers below `end` in random order.
std::vector<size_t> draw_numbers(size_t count, size_t end, std::mt19937_64& random) {
  std::vector<size_t> numbers(end);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  for (size_t i = 0; i < std::min(count, end); ++i) {
    std::swap(numbers[i], numbers[i + draw_below(end - i, random)]);
  }
  numbers.resize(std::min(count, end));
  return numbers;
}

std::vector<std::string> draw_pairs(std::string_view before, std::string_view after, size_t count,
                                    std::mt19937_64& random) {
  const auto first = split(before), second = split(after);
  const size_t pairs = first.size() * second.size();
  std::vector<std::string> names;
  for (const size_t i : draw_numbers(count, std::max(count, pairs), random)) {
    const std::string more = i < pairs ? "" : std::string(first[i / pairs % first.size()]) + " ";
    names.push_back(fmt::format("{}{} {}", more, first[i % first.size()],
                                second[i / first.size() % second.size()]));
  }
  return names;
}

}  // namespace

size_t draw_below(size_t end, std::mt19937_64& random) { return random() % end; }

std::vector<std::string> draw_names(size_t count, std::mt19937_64& random) {
  return draw_pairs(kAdjectives, kNouns, count, random);
}

std::vector<std::string> draw_people(size_t count, std::mt19937_64& random) {
  return draw_pairs(kFirstNames, kLastNames, count, random);
}

std::vector<std::string> draw_words(size_t count, std::mt19937_64& random) {
  auto words = split(kAdjectives);
  const auto nouns = split(kNouns);
  words.insert(words.end(), nouns.begin(), nouns.end());
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::vector<std::string> drawn;
  for (const size_t i : draw_numbers(count, words.size(), random)) drawn.emplace_back(words[i]);
  return drawn;
}

std::string draw_digits(int count, std::mt19937_64& random) {
  std::string digits(1, static_cast<char>('1' + draw_below(9, random)));
  while (std::ssize(digits) < count) digits += static_cast<char>('0' + draw_below(10, random));
  return digits;
}

std::string draw_letters(int count, char first, std::mt19937_64& random) {
  std::string letters;
  while (std::ssize(letters) < count) letters += static_cast<char>(first + draw_below(26, random));
  return letters;
}

std::string draw_uuid(std::mt19937_64& random) {
  const uint64_t high = (random() & ~uint64_t{0xf000}) | 0x4000;
  const uint64_t low = (random() & ~(uint64_t{3} << 62)) | (uint64_t{1} << 63);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xffff,
                     high & 0xffff, low >> 48, low & 0xffffffffffff);
}

}  // namespace fasa
