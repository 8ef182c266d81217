// SnapshotRule where a caller holds one of the lengths.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/base/linear_shape.h"

namespace fasa {

// Erases the copies, in order of tokens, that the rule does not keep. The one at `held` tokens is
// one of the rule's last turns, whatever follows it; 0: none is held.
template <typename Copies, typename TokensOf>
void keep_snapshots(SnapshotRule rule, Copies& copies, const TokensOf& tokens_of, int64_t held) {
  const auto found = std::find_if(copies.begin(), copies.end(),
                                  [&](const auto& one) { return tokens_of(one) == held; });
  const bool plain = rule.turns == 0 || held % rule.interval == 0;  // kept in any case
  if (found == copies.end() || plain) return rule.apply(copies, tokens_of);
  auto kept = std::move(*found);
  copies.erase(found);
  --rule.turns;
  rule.apply(copies, tokens_of);
  const auto after = std::find_if(copies.begin(), copies.end(),
                                  [&](const auto& one) { return tokens_of(one) > held; });
  copies.insert(after, std::move(kept));
}

}  // namespace fasa
