// Generated texts with questions about them: the table of `fasa eval retrieval` and `extract`.
//
// They have the forms of RULER's synthetic tasks (arXiv 2404.06654) in words of our own; "extract"
// is ours.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/tasks/haystack.h"
#include "runtime/eval/tasks/question_task.h"

namespace fasa {

// What a text is drawn from.
struct Drawing {
  std::mt19937_64& random;
  size_t units;     // of the surroundings: sentences or words
  int64_t context;  // tokens that the text is made for
  const Haystack& texts;
  int records;  // extract
};

// Questions without `answer_tokens`.
struct DrawnText {
  std::string text;
  std::vector<Question> questions;
};

// Facts of the form "the vault named KEY opens with VALUE".
struct Needles {
  enum class Among : uint8_t { kNoise, kTexts, kNeedles };
  Among among = Among::kNoise;
  bool uuid_keys = false;    // else names
  bool uuid_values = false;  // else seven digits
  int keys = 1;
  int values = 1;  // of each key
  int asked = 1;   // keys
};

struct DrawnKind {
  std::string_view name;
  DrawnText (*draw)(const DrawnKind& kind, const Drawing& drawing);
  double (*score)(const std::vector<std::string>& references, std::string_view answer);
  size_t min_units = 0;
  Needles needles = {};
};

std::span<const DrawnKind> retrieval_kinds();
const DrawnKind& extract_kind();

DrawnText draw_chain(const DrawnKind& kind, const Drawing& drawing);
DrawnText draw_common_words(const DrawnKind& kind, const Drawing& drawing);
DrawnText draw_frequent_words(const DrawnKind& kind, const Drawing& drawing);
DrawnText draw_records(const DrawnKind& kind, const Drawing& drawing);

// F1 over the fields of records: the JSON objects in an answer, each compared with the reference
// that shares most fields with it, each reference once.
double record_f1(const std::vector<std::string>& references, std::string_view answer);

// "a, b and c".
std::string listed(const std::vector<std::string>& words);
// The units with the statements between them, each before the unit of its position.
struct PlacedSentence {
  size_t unit = 0;
  std::string text;
};
std::string join(const std::vector<std::string>& units, std::vector<PlacedSentence> placed);

}  // namespace fasa
