// Options of a selection besides its kind.
#pragma once

#include <cstdint>

namespace fasa {

// How the scores of a KV head's query heads are joined to one per token. S: raw score of a query
// head.
enum class GroupRule : uint8_t {
  kMaxNormalised,  // max over heads of S - max S: no exponential, the kernels' rule
  kLogSoftmaxMax,  // max over heads of log softmax(S)
  kSoftmaxSum,     // sum over heads of softmax(S)
  kRawMax,         // max over heads of S
  kRawSum,         // sum over heads of S
};

// The heads that have a token set of their own.
enum class SelectionScope : uint8_t { kKvHead, kQueryHead };

struct SelectionOptions {
  GroupRule rule = GroupRule::kMaxNormalised;
  SelectionScope scope = SelectionScope::kKvHead;
  int page_tokens = 1;  // kind fasa: tokens chosen together, by their mean key
  float rescore = 1;    // kind fasa: candidates per chosen token, rescored on whole keys
  uint64_t seed = 0;    // kind random

  // True if the fused kernels implement these options.
  bool fused() const {
    return rule == GroupRule::kMaxNormalised && scope == SelectionScope::kKvHead && rescore == 1;
  }
};

}  // namespace fasa
