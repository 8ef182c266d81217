// What a selection may be told beside its kind.
#pragma once

#include <cstdint>

namespace fasa {

// How the scores of a KV head's query heads become one per token. S: raw score of a query head.
enum class GroupRule : uint8_t {
  kMaxNormalised,  // max over heads of S - max S: no exponential, the kernels' rule
  kLogSoftmaxMax,  // max over heads of log softmax(S)
  kSoftmaxSum,     // sum over heads of softmax(S)
  kRawMax,         // max over heads of S
  kRawSum,         // sum over heads of S
};

// Who has a token set of its own.
enum class SelectionScope : uint8_t { kKvHead, kQueryHead };

struct SelectionOptions {
  GroupRule rule = GroupRule::kMaxNormalised;
  SelectionScope scope = SelectionScope::kKvHead;
  int page_tokens = 1;  // of kind fasa: tokens that are chosen together, by their mean key
  float rescore = 1;    // of kind fasa: candidates per chosen token that are scored on whole keys
  uint64_t seed = 0;    // of kind random

  // What the fused kernels do.
  bool fused() const {
    return rule == GroupRule::kMaxNormalised && scope == SelectionScope::kKvHead && rescore == 1;
  }
};

}  // namespace fasa
