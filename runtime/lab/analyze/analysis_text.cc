#include "runtime/lab/analyze/analysis_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/base/error.h"
#include "runtime/capture/probes.h"

namespace fasa {

AnalysisText make_analysis_text(std::string name, std::span<const int32_t> ids, int64_t tokens,
                                int64_t least, int queries, uint64_t seed) {
  if (static_cast<int64_t>(ids.size()) < least) {
    throw InputError(
        fmt::format("{}: the text has {} tokens; an analysis with this window needs {}; give a "
                    "longer text, or lower --window",
                    name, ids.size(), least));
  }
  ProbedText probed =
      plant_probes(ids, tokens, {.queries = queries / 2, .length = 16, .seed = seed});
  std::vector<int32_t> places(static_cast<size_t>(probed.text_end / 3)), chosen;
  std::iota(places.begin(), places.end(),
            static_cast<int32_t>(probed.text_end - probed.text_end / 3));
  std::mt19937_64 random(seed);
  std::sample(places.begin(), places.end(), std::back_inserter(chosen), queries, random);

  AnalysisText text{.name = std::move(name),
                    .data = {},
                    .anchors = {},
                    .probes = {},
                    .text_end = probed.text_end};
  std::vector<int32_t>& positions = text.data.positions;
  for (const int32_t anchor : chosen) {
    for (int32_t at = std::max(0, anchor - kObservationWindow + 1); at <= anchor; ++at) {
      positions.push_back(at);
    }
  }
  positions.insert(positions.end(), probed.positions.begin(), probed.positions.end());
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  const auto index_of = [&](int32_t position) {
    return static_cast<size_t>(std::lower_bound(positions.begin(), positions.end(), position) -
                               positions.begin());
  };
  for (const int32_t anchor : chosen) text.anchors.push_back(index_of(anchor));
  for (const int32_t probe : probed.positions) text.probes.push_back(index_of(probe));
  text.data.ids = std::move(probed.ids);
  text.data.probes = !text.probes.empty();
  return text;
}

}  // namespace fasa
