#include "runtime/text/pre_tokenizer.h"

#include "runtime/base/error.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/json_part.h"
#include "runtime/text/splitter.h"

namespace fasa::text {
namespace {

// GPT-2's words: contractions; letters, numbers or other signs, each with the blank before them.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Numbers in Unicode 17.
constexpr std::string_view kNumberPattern = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])";
// Hugging Face's punctuation table is older than its regular expressions: ASCII signs and the
// categories P* of Unicode 8.
constexpr std::string_view kPunctuationPattern =
    R"([\p{P}$+<=>\^`|~\x{166d}\x{111c9}&&[^\x{61d}\x{9fd}\x{a76}\x{c77}\x{c84}\x{1b4e}\x{1b4f})"
    R"(\x{1b7d}-\x{1b7f}\x{2e43}-\x{2e4f}\x{2e52}-\x{2e5d}\x{10d6e}\x{10ead}\x{10f55}-\x{10f59})"
    R"(\x{10f86}-\x{10f89}\x{113d4}\x{113d5}\x{113d7}\x{113d8}\x{1144b}-\x{1144f}\x{1145a})"
    R"(\x{1145b}\x{1145d}\x{11660}-\x{1166c}\x{116b9}\x{1183b}\x{11944}-\x{11946}\x{119e2})"
    R"(\x{11a3f}-\x{11a46}\x{11a9a}-\x{11a9c}\x{11a9e}-\x{11aa2}\x{11b00}-\x{11b09}\x{11be1})"
    R"(\x{11c41}-\x{11c45}\x{11c70}\x{11c71}\x{11ef7}\x{11ef8}\x{11f43}-\x{11f4f}\x{11fff})"
    R"(\x{12ff1}\x{12ff2}\x{16d6d}-\x{16d6f}\x{16e97}-\x{16e9a}\x{16fe2}\x{1e5ff}\x{1e95e})"
    R"(\x{1e95f}]])";

SplitBehavior behavior_of(const JsonPart& part) {
  return static_cast<SplitBehavior>(part.choice(
      "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

// Inserts `prefix` before each word for which `wants` is true.
template <typename Wants>
void put_before_words(Words& words, std::string_view prefix, Wants wants) {
  TextBuilder built(words.text);
  for (Span& word : words.spans) {
    const size_t begin = built.size();
    if (wants(word)) built.put(prefix, word.begin);
    built.copy(word);
    word = {begin, built.size()};
  }
  words.text = built.take();
}

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const JsonPart& part) : add_blank_(part.boolean_or("add_prefix_space", true)) {
    if (!part.boolean_or("use_regex", true)) return;
    splitter_.emplace(Regex(kByteLevelPattern, part.name()), SplitBehavior::kIsolated, false);
  }

  void apply(Words& words) const override {
    if (add_blank_) {
      put_before_words(words, " ", [&](Span word) { return words.text.text[word.begin] != ' '; });
    }
    if (splitter_) splitter_->apply(words);
    spell(words);
  }

 private:
  static void spell(Words& words) {
    const ByteAlphabet& alphabet = ByteAlphabet::get();
    MappedText spelt;
    spelt.text.reserve(words.text.text.size() + words.text.text.size() / 2);
    for (Span& word : words.spans) {
      const size_t begin = spelt.text.size();
      for (size_t at = word.begin; at < word.end; ++at) {
        alphabet.append(words.text.text[at], spelt.text);
        if (words.text.is_mapped()) {
          spelt.origins.resize(spelt.text.size(), words.text.origins[at]);
        }
      }
      word = {begin, spelt.text.size()};
    }
    words.text = std::move(spelt);
  }

  bool add_blank_;
  std::optional<Splitter> splitter_;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { kFirst, kNever, kAlways };

  explicit Metaspace(const JsonPart& part)
      : mark_(part.character("replacement")), prepend_(prepend_of(part)) {
    if (part.boolean_or("split", true)) {
      splitter_.emplace(Regex("\\Q" + mark_ + "\\E", part.name()), SplitBehavior::kMergedWithNext,
                        false);
    }
  }

  static Prepend prepend_of(const JsonPart& part) {
    const Prepend prepend =
        part.has("prepend_scheme")
            ? static_cast<Prepend>(part.choice("prepend_scheme", {"first", "never", "always"}))
            : Prepend::kAlways;
    if (part.boolean_or("add_prefix_space", true)) return prepend;
    if (part.has("prepend_scheme") && prepend != Prepend::kNever) {
      part.fail("add_prefix_space", "true, or the prepend_scheme \"never\"");
    }
    return Prepend::kNever;
  }

  void apply(Words& words) const override {
    replace_blanks(words);
    if (prepend_ != Prepend::kNever) {
      put_before_words(words, mark_, [&](Span word) {
        const bool marked = words.text.text.compare(word.begin, mark_.size(), mark_) == 0;
        return !marked && (prepend_ == Prepend::kAlways || words.text.origins[word.begin] == 0);
      });
    }
    if (splitter_) splitter_->apply(words);
  }

 private:
  void replace_blanks(Words& words) const {
    TextBuilder built(words.text);
    for (Span& word : words.spans) {
      const size_t begin = built.size();
      size_t copied = word.begin;
      for (size_t at = word.begin; at < word.end; ++at) {
        if (words.text.text[at] != ' ') continue;
        built.copy({copied, at});
        built.put(mark_, at);
        copied = at + 1;
      }
      built.copy({copied, word.end});
      word = {begin, built.size()};
    }
    words.text = built.take();
  }

  std::string mark_;
  Prepend prepend_;
  std::optional<Splitter> splitter_;
};

std::unique_ptr<const PreTokenizer> make_step(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "Split") {
    return std::make_unique<Splitter>(part.pattern("pattern"), behavior_of(part),
                                      part.boolean_or("invert", false));
  }
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(part);
  if (type == "Metaspace") return std::make_unique<Metaspace>(part);
  if (type == "Digits") {
    const bool each = part.boolean_or("individual_digits", false);
    return std::make_unique<Splitter>(Regex(kNumberPattern, part.name()),
                                      each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                                      false);
  }
  if (type == "Punctuation") {
    return std::make_unique<Splitter>(
        Regex(kPunctuationPattern, part.name()),
        part.has("behavior") ? behavior_of(part) : SplitBehavior::kIsolated, false);
  }
  part.refuse("Split, ByteLevel, Digits, Punctuation, Metaspace, Sequence");
}

}  // namespace

PreTokenizerChain::PreTokenizerChain(const nlohmann::json& part, const std::string& place) {
  if (part.is_null()) return;
  for (const JsonPart& step : steps_of(part, place, "pretokenizers")) {
    steps_.push_back(make_step(step));
    needs_origins_ |=
        step.type() == "Metaspace" && Metaspace::prepend_of(step) == Metaspace::Prepend::kFirst;
  }
}

Words PreTokenizerChain::apply(MappedText text) const {
  Words words{std::move(text), {}};
  if (words.text.text.empty()) return words;
  words.spans.push_back({0, words.text.text.size()});
  for (const auto& step : steps_) step->apply(words);
  return words;
}

}  // namespace fasa::text
