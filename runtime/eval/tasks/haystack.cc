#include "runtime/eval/tasks/haystack.h"

#include <algorithm>

namespace fasa {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kEnds = ".!?;:";
constexpr std::string_view kWideEnd = "\xe3\x80\x82";  // the full stop of Chinese and Japanese
constexpr size_t kLongest = 400;                       // bytes
constexpr std::string_view kDull =
    "The road goes on between the fields. Rain falls on the roofs and stops again. A dog barks "
    "behind a wall. Somebody closes a window. The bus comes at six and leaves at seven. ";

// The end of the sentence that begins at `at`, with the blanks behind it.
size_t sentence_end(std::string_view text, size_t at) {
  size_t blank = std::string_view::npos;  // where a long sentence can be cut
  for (size_t i = at; i < text.size(); ++i) {
    const bool breaks = i + 1 < text.size() && kBlanks.find(text[i + 1]) != std::string_view::npos;
    if (text.substr(i).starts_with(kWideEnd)) return i + kWideEnd.size();
    if (kBlanks.find(text[i]) != std::string_view::npos) blank = i + 1;
    if (kEnds.find(text[i]) != std::string_view::npos && breaks) {
      return std::min(text.find_first_not_of(kBlanks, i + 1), text.size());
    }
    if (i - at >= kLongest && blank != std::string_view::npos) return blank;
  }
  return text.size();
}

}  // namespace

std::vector<std::string_view> sentences(std::string_view text) {
  std::vector<std::string_view> found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = sentence_end(text, at);
    found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

Haystack Haystack::noise() {
  Haystack hay;
  hay.sentences_ = sentences(kDull);
  return hay;
}

Haystack Haystack::of_texts(std::span<const EvalText> texts) {
  Haystack hay;
  for (const EvalText& text : texts) {
    const auto more = sentences(text.bytes);
    hay.sentences_.insert(hay.sentences_.end(), more.begin(), more.end());
  }
  return hay;
}

std::vector<std::string> Haystack::take(size_t first, size_t count) const {
  std::vector<std::string> taken;
  taken.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    taken.emplace_back(sentences_[(first + i) % sentences_.size()]);
    // The last sentence of a text may end without a blank.
    if (kBlanks.find(taken.back().back()) == std::string_view::npos &&
        !taken.back().ends_with(kWideEnd)) {
      taken.back() += ' ';
    }
  }
  return taken;
}

}  // namespace fasa
