// Ranks a head's frequency chunks: the mathematics of calibration, independent of a model.
//
//   ca                 mean contextual agreement of the FC alone with the whole head (the paper's)
//   distant_attention  greedy: picks the FC that adds most captured attention on distant tokens
//                      (those outside sinks and recent window) to the earlier picks
//
// Attention is not normalised per query: a query weighs as much as its distant attention.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa {

enum class Objective : uint8_t { kDistantAttention, kCa };

std::string_view objective_name(Objective objective);  // "distant_attention" or "ca"
// Throws UsageError for other names; `option`: where the name is from.
Objective parse_objective(std::string_view name, std::string_view option = "objective");

struct RankingOptions {
  Objective objective = Objective::kDistantAttention;
  int window = 256;  // K: tokens selected, for agreement and attention alike; > sinks + recent
  int sinks = 4;
  int recent = 16;
  // `distant_attention` picks this many FCs one by one, or as many single dimensions as those have.
  // The others follow, ordered by their gain at the last pick. 0 = pick all one by one.
  int greedy_chunks = 0;
};

// Ranks all FCs of a head. Selection follows the runtime's rule: a token's score is the maximum
// over the group's query heads of S - max S; protected tokens (sinks and recent) are always
// selected and count. Runs in parallel over queries in the caller's oneTBB arena; the result
// does not depend on the number of threads. Time grows with queries x tokens x group x
// greedy_chunks x FCs.
HeadRanking rank_chunks(const HeadSamples& samples, const RankingOptions& options);

}  // namespace fasa
