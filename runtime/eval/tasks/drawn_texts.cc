#include "runtime/eval/tasks/drawn_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/eval/tasks/word_lists.h"

namespace fasa {
namespace {

constexpr size_t kDepths = 40;  // equal steps, drawn without replacement

std::string statement(const std::string& key, const std::string& value) {
  return fmt::format("The vault named {} opens with {}. ", key, value);
}

std::vector<std::string> draw_keys(bool uuids, size_t count, std::mt19937_64& random) {
  if (!uuids) return draw_names(count, random);
  std::vector<std::string> keys;
  for (size_t i = 0; i < count; ++i) keys.push_back(draw_uuid(random));
  return keys;
}

std::string draw_value(const Needles& needles, std::mt19937_64& random) {
  return needles.uuid_values ? draw_uuid(random) : draw_digits(7, random);
}

std::vector<std::string> surroundings(const Needles& needles, const Drawing& drawing,
                                      std::span<const std::string> other_keys) {
  if (needles.among == Needles::Among::kNeedles) {
    std::vector<std::string> units;
    for (const auto& key : other_keys) {
      units.push_back(statement(key, draw_value(needles, drawing.random)));
    }
    return units;
  }
  const bool noise = needles.among == Needles::Among::kNoise;
  const size_t first = noise ? 0 : draw_below(drawing.texts.size(), drawing.random);
  return (noise ? Haystack::noise() : drawing.texts).take(first, drawing.units);
}

Question ask_for(const std::vector<std::string>& keys, std::vector<std::string> values) {
  Question question;
  if (keys.size() == 1) {
    question.text = fmt::format(
        "\n\nQuestion: Which {} the vault named {}?\nAnswer: The vault named {} opens with",
        values.size() == 1 ? "code opens" : "codes open", keys.front(), keys.front());
  } else {
    question.text = fmt::format(
        "\n\nQuestion: Which codes open the vaults named {}?\nAnswer: In this order they open with",
        listed(keys));
  }
  question.answer = fmt::format(" {}.", listed(values));
  question.references = std::move(values);
  return question;
}

DrawnText draw_needles(const DrawnKind& kind, const Drawing& drawing) {
  const Needles& needles = kind.needles;
  const auto own = static_cast<size_t>(needles.keys);
  const bool among_needles = needles.among == Needles::Among::kNeedles;
  const auto keys =
      draw_keys(needles.uuid_keys, own + (among_needles ? drawing.units : 0), drawing.random);
  std::vector<size_t> depths(kDepths);
  for (size_t i = 0; i < kDepths; ++i) depths[i] = i;
  shuffle(depths, drawing.random);
  const std::vector<std::string> asked(keys.begin(), keys.begin() + needles.asked);
  std::vector<PlacedSentence> placed;
  std::vector<std::string> values;
  double depth = 0;
  for (size_t i = 0; i < own; ++i) {
    for (int v = 0; v < needles.values; ++v) {
      const size_t step = depths[placed.size()];
      const std::string value = draw_value(needles, drawing.random);
      placed.push_back({step * drawing.units / kDepths, statement(keys[i], value)});
      if (i >= asked.size()) continue;
      values.push_back(value);
      depth = static_cast<double>(step) / kDepths;
    }
  }
  DrawnText drawn;
  drawn.text =
      "Some sentences of this text say which code opens a vault. Remember them: you will "
      "be asked for a code.\n\n";
  drawn.text += join(surroundings(needles, drawing, std::span(keys).subspan(own)), placed);
  drawn.questions.push_back(ask_for(asked, std::move(values)));
  if (placed.size() == 1 || own > asked.size()) drawn.questions.back().about["depth"] = depth;
  return drawn;
}

using enum Needles::Among;
constexpr size_t kMinWords = 60;  // the most frequent ones must differ in number
constexpr std::array<DrawnKind, 11> kRetrieval = {{
    {"one-in-noise", draw_needles, share_found, 0, {.among = kNoise}},
    {"one-in-texts", draw_needles, share_found, 0, {.among = kTexts}},
    {"one-id-in-texts", draw_needles, share_found, 0, {.among = kTexts, .uuid_values = true}},
    {"one-of-four", draw_needles, share_found, 0, {.among = kTexts, .keys = 4}},
    {"one-of-many", draw_needles, share_found, 1, {.among = kNeedles}},
    {"one-id-of-many",
     draw_needles,
     share_found,
     1,
     {.among = kNeedles, .uuid_keys = true, .uuid_values = true}},
    {"four-values", draw_needles, share_found, 0, {.among = kTexts, .values = 4}},
    {"four-keys", draw_needles, share_found, 0, {.among = kTexts, .keys = 4, .asked = 4}},
    {"chain", draw_chain, share_found},
    {"common-words", draw_common_words, share_found, 1},
    {"frequent-words", draw_frequent_words, share_found, kMinWords},
}};
constexpr DrawnKind kExtract = {"extract", draw_records, record_f1};

}  // namespace

std::span<const DrawnKind> retrieval_kinds() { return kRetrieval; }
const DrawnKind& extract_kind() { return kExtract; }

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

std::string join(const std::vector<std::string>& units, std::vector<PlacedSentence> placed) {
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.unit < b.unit; });
  std::string text;
  size_t next = 0;
  for (size_t unit = 0; unit <= units.size(); ++unit) {
    for (; next < placed.size() && (placed[next].unit <= unit || unit == units.size()); ++next) {
      text += placed[next].text;
    }
    if (unit < units.size()) text += units[unit];
  }
  return text;
}

}  // namespace fasa
