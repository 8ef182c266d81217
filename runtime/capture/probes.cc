#include "runtime/capture/probes.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace fasa {
namespace {

// The first tokens of a repeat give no queries: the model cannot know yet that it is a repeat.
constexpr int kLeadTokens = 2;
// Few queries per string: more strings at more distances are more informative.
constexpr int kQueriesPerString = 4;

std::vector<int32_t> distinct(std::span<const int32_t> text) {
  std::vector<int32_t> ids(text.begin(), text.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

ProbedText plant_probes(std::span<const int32_t> text, int64_t tokens,
                        const ProbeOptions& options) {
  const int64_t length = options.length;
  const int64_t wanted = (options.queries + kQueriesPerString - 1) / kQueriesPerString;
  const int64_t room = std::min(tokens, 2 * static_cast<int64_t>(text.size())) / (4 * length);
  const int64_t strings = std::min(wanted, room);
  const int64_t body =
      std::clamp<int64_t>(tokens - 2 * strings * length, 0, static_cast<int64_t>(text.size()));
  std::mt19937_64 random(options.seed);
  const std::vector<int32_t> alphabet = distinct(text);
  std::vector<std::vector<int32_t>> planted(static_cast<size_t>(std::max<int64_t>(strings, 0)));
  for (auto& string : planted) {
    for (int64_t i = 0; i < length; ++i) string.push_back(alphabet[random() % alphabet.size()]);
  }

  ProbedText result;
  int64_t copied = 0;
  for (int64_t s = 0; s < strings; ++s) {
    // Each string is planted at a random position in its own stretch of the text, so that distances
    // differ.
    const int64_t begin = body * s / strings, end = body * (s + 1) / strings;
    const int64_t at =
        begin +
        static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(end - begin, 1)));
    result.ids.insert(result.ids.end(), text.begin() + copied, text.begin() + at);
    copied = at;
    const auto& string = planted[static_cast<size_t>(s)];
    result.ids.insert(result.ids.end(), string.begin(), string.end());
  }
  result.ids.insert(result.ids.end(), text.begin() + copied, text.begin() + body);
  result.text_end = static_cast<int64_t>(result.ids.size());

  std::shuffle(planted.begin(), planted.end(), random);
  std::vector<int32_t> candidates;
  for (const auto& string : planted) {
    for (int64_t i = kLeadTokens; i < length; ++i) {
      candidates.push_back(static_cast<int32_t>(static_cast<int64_t>(result.ids.size()) + i));
    }
    result.ids.insert(result.ids.end(), string.begin(), string.end());
  }
  std::sample(candidates.begin(), candidates.end(), std::back_inserter(result.positions),
              std::max(options.queries, 0), random);
  return result;
}

}  // namespace fasa
