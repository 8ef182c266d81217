// Texts whose question needs many of their words: a chain of names, common words of a list,
// frequent coded words.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/eval/tasks/drawn_texts.h"
#include "runtime/eval/tasks/word_lists.h"

namespace fasa {
namespace {

constexpr size_t kHops = 4;

// The statements of a chain: the first name has the value, each other that of the name before it.
std::vector<std::string> chain(const std::vector<std::string>& names, const std::string& value) {
  std::vector<std::string> statements{fmt::format("{} is set to {}. ", names[0], value)};
  for (size_t i = 1; i < names.size(); ++i) {
    statements.push_back(fmt::format("{} is set to the number of {}. ", names[i], names[i - 1]));
  }
  return statements;
}

// The words as a numbered list in random order.
std::string numbered(std::vector<std::string> words, std::mt19937_64& random) {
  shuffle(words, random);
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += fmt::format("{}. {} ", i + 1, words[i]);
  return text;
}

void add(std::vector<std::string>& words, const std::string& word, int64_t times) {
  words.insert(words.end(), static_cast<size_t>(times), word);
}

Question question(std::string text, const std::vector<std::string>& references) {
  Question one;
  one.text = std::move(text);
  one.answer = fmt::format(" {}.", listed(references));
  one.references = references;
  return one;
}

}  // namespace

DrawnText draw_chain(const DrawnKind& /*kind*/, const Drawing& drawing) {
  std::vector<std::string> names;
  while (names.size() <= kHops) {
    const std::string name = draw_letters(5, 'A', drawing.random);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  const std::string value = draw_digits(5, drawing.random);
  std::vector<size_t> places;
  for (size_t i = 0; i <= kHops; ++i) {
    places.push_back(draw_below(1000, drawing.random) * drawing.units / 1000);
  }
  std::sort(places.begin(), places.end());
  const auto statements = chain(names, value);
  std::vector<PlacedSentence> placed;
  for (size_t i = 0; i <= kHops; ++i) placed.push_back({places[i], statements[i]});
  const auto ask = [](const std::string& number) {
    return fmt::format(
        "\n\nQuestion: Which names have the number {}, their own or another's?\nAnswer: The names "
        "are",
        number);
  };
  DrawnText drawn;
  drawn.text =
      "Names are set to numbers, or to the numbers of other names. Remember which.\n\nQKXAB is set "
      "to 11111. The dog barks. ZPLMO is set to the number of QKXAB." +
      ask("11111") + " QKXAB and ZPLMO.\n\n";
  drawn.text += join(Haystack::noise().take(0, drawing.units), placed);
  drawn.questions.push_back(question(ask(value), names));
  return drawn;
}

DrawnText draw_common_words(const DrawnKind& /*kind*/, const Drawing& drawing) {
  struct Form {
    size_t common;
    int64_t often, seldom;
  };
  const Form form = drawing.context < 2048   ? Form{5, 6, 1}
                    : drawing.context < 4096 ? Form{10, 6, 1}
                                             : Form{10, 30, 3};
  auto names = draw_words(form.common, drawing.random);
  std::vector<std::string> words;
  for (const auto& name : names) add(words, name, form.often);
  // Pairs of words are no common ones.
  for (const auto& other : draw_names(drawing.units, drawing.random)) {
    add(words, other.substr(0, other.find(' ')) + other.substr(other.find(' ') + 1), form.seldom);
  }
  const auto ask = [](size_t count) {
    return fmt::format(
        "\n\nQuestion: Which {} words are in the list most often?\nAnswer: The words are", count);
  };
  DrawnText drawn;
  drawn.text =
      "Some words are in a list more often than others. Remember which.\n\n1. sun 2. tea "
      "3. sun 4. salt 5. tea 6. mud 7. sun 8. tea " +
      ask(2) + " sun and tea.\n\n";
  drawn.text += numbered(std::move(words), drawing.random);
  drawn.questions.push_back(question(ask(form.common), names));
  return drawn;
}

// Word k of the frequencies' order occurs in proportion to 1/k^2; the first is dots.
DrawnText draw_frequent_words(const DrawnKind& /*kind*/, const Drawing& drawing) {
  constexpr size_t kAsked = 3;
  const double first = static_cast<double>(drawing.units) * 6 / std::pow(std::numbers::pi, 2);
  std::vector<std::string> words, asked;
  for (size_t k = 1; words.size() < drawing.units; ++k) {
    const std::string word = k == 1 ? "......" : draw_letters(6, 'a', drawing.random);
    const auto times = static_cast<int64_t>(first / static_cast<double>(k * k));
    add(words, word, std::max<int64_t>(1, times));
    if (k > 1 && asked.size() < kAsked) asked.push_back(word);
  }
  shuffle(words, drawing.random);
  DrawnText drawn;
  drawn.text = "Read this coded text. You will be asked for the words that occur most often.\n\n";
  for (const auto& word : words) drawn.text += word + ' ';
  drawn.questions.push_back(
      question("\n\nQuestion: Which three coded words occur most often, not counting the "
               "dots?\nAnswer: The words are",
               asked));
  return drawn;
}

}  // namespace fasa
