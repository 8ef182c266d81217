// A key head's part of a gated delta net: the value heads that share its keys, over one sequence's
// tokens of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/delta_bodies.h"
#include "kernels/linear_params.h"

namespace fasa::cpu {

// Memory of one block; grows only.
struct DeltaScratch {
  void fit(const LinearLayout& layout);

  std::vector<float> keys;        // [kLinearBlock, key_dim], divided by their lengths
  std::vector<float> turned;      // [key_dim, kLinearBlock]: the same transposed
  std::vector<float> queries;     // [kLinearBlock, key_dim] of new tokens, scaled too
  std::vector<float> key_scores;  // [kLinearBlock, kLinearBlock]: products of keys
  std::vector<float> scores;      // [kLinearBlock, kLinearBlock]: of new tokens' queries with keys
  std::vector<float> values;      // [kLinearBlock, width], then what each token adds to the state
  std::vector<float> read;        // [kLinearBlock, width]: what the state gives for keys, queries
  std::vector<float> weights;     // [key_dim, kLinearBlock]
  std::vector<float> drafted;     // states of a key head's value heads behind drafts
  float beta[kLinearBlock], decay[kLinearBlock];
  float total[kLinearBlock];  // sum of decays up to a token
};

class DeltaHeads {
 public:
  // All must outlive it.
  DeltaHeads(const DeltaNetParams& params, const DeltaBodies& bodies, DeltaScratch& scratch)
      : params_(params),
        bodies_(bodies),
        shape_(params.layout->shape()),
        width_(params.layout->value_stride()),
        scratch_(scratch) {}

  void run(const LinearPart& part, int key_head);

 private:
  // The open block's tokens, then new ones, with keys of one head.
  struct Block {
    const LinearPart* part = nullptr;
    int key_head = 0;
    int open = 0;       // tokens from the state's memory
    int64_t row = 0;    // of the first new token, in the step
    int64_t fresh = 0;  // new tokens
    int64_t tokens() const { return open + fresh; }
  };
  void take_waiting(const LinearPart& part, int key_head);
  void close_open(const LinearPart& part, int key_head);
  void decode(const LinearPart& part, int key_head);
  void prefill(const LinearPart& part, int key_head);
  void load_keys(const Block& block);
  void load_values(const Block& block, int head);
  void load_gates(const Block& block, int head);
  void load_row(int64_t row, int64_t channel, int64_t count, float* out) const;
  void solve(const Block& block, const float* state);
  void attend(const Block& block, int head, const float* state);
  void close(const Block& block, float* state);
  void keep_open(const Block& block) const;
  // A token of a block, whose values and gates are loaded.
  void advance(int64_t at, const float* query, const float* key, float* state);
  void write(int64_t row, int head, const float* o) const;
  std::byte* memory(const LinearPart& part) const {
    return part.state + params_.layer * params_.layout->layer_bytes();
  }
  float* state_of(const LinearPart& part, int head) const {
    return reinterpret_cast<float*>(memory(part)) + head * params_.layout->head_elements();
  }
  void save(const LinearPart& part, int key_head) const;
  void set_gates(int64_t at, float b, float a, int head);

  const DeltaNetParams& params_;
  const DeltaBodies& bodies_;
  const LinearShape& shape_;
  const int64_t width_;  // of a head's values, padded
  DeltaScratch& scratch_;
};

}  // namespace fasa::cpu
