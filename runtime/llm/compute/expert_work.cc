#include "runtime/llm/compute/expert_work.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/row_calls.h"
#include "kernels/expert_params.h"

namespace fasa {
namespace {

void softmax(float* x, int count) {
  const float most = *std::max_element(x, x + count);
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += x[i] = std::exp(x[i] - most);
  for (int i = 0; i < count; ++i) x[i] /= sum;
}

void sigmoid(float* x, int count) {
  for (int i = 0; i < count; ++i) x[i] = 1 / (1 + std::exp(-x[i]));
}

// Zeroes all but the best `kept` of `count` blocks of `size` scores; blocks rank by the maximum of
// `ranks`, which may be the scores.
void keep_best(const float* ranks, float* scores, int count, int size, int kept) {
  thread_local std::vector<int> order;  // grows only
  order.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
  const auto largest = [&](int block) {
    return *std::max_element(ranks + block * size, ranks + (block + 1) * size);
  };
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](int a, int b) {
    const float of_a = largest(a);
    const float of_b = largest(b);
    return of_a > of_b || (of_a == of_b && a < b);
  });
  for (auto left_out = order.begin() + kept; left_out != order.end(); ++left_out) {
    std::fill_n(scores + *left_out * size, size, 0.0f);
  }
}

}  // namespace

void route(const ExpertShape& shape, float* logits, const float* scale, const float* correction) {
  thread_local std::vector<float> corrected;  // grows only
  (shape.sigmoid ? sigmoid : softmax)(logits, shape.count);
  if (shape.groups > 1) {
    keep_best(logits, logits, shape.groups, shape.count / shape.groups, shape.chosen_groups);
  }
  const float* ranks = logits;
  if (correction != nullptr) {
    corrected.assign(logits, logits + shape.count);
    for (int i = 0; i < shape.count; ++i) corrected[static_cast<size_t>(i)] += correction[i];
    ranks = corrected.data();
  }
  keep_best(ranks, logits, shape.count, 1, shape.chosen);
  float factor = shape.scale;
  if (shape.normalised) {
    float sum = 0;
    for (int i = 0; i < shape.count; ++i) sum += logits[i];
    factor /= sum + kMinExpertSum;
  }
  for (int i = 0; i < shape.count; ++i) logits[i] *= factor;
  for (int i = 0; scale != nullptr && i < shape.count; ++i) logits[i] *= scale[i];
}

// The tokens that chose one expert, in order, and their runs by phase.
struct ExpertWork::Chosen {
  std::vector<int64_t> tokens;
  std::vector<RowRun> runs;

  void add(int64_t token, StepMode mode) {
    tokens.push_back(token);
    add_rows(&runs, 1, mode);
  }
};

ExpertWork::Bytes& ExpertWork::Bytes::operator+=(const Bytes& more) {
  routed += more.routed;
  other += more.other;
  operations += more.operations;
  return *this;
}

ExpertWork::Bytes ExpertWork::run(const ExpertLayerWeights& layer,
                                  const std::byte* router_input) const {
  const ExpertShape& shape = config_.experts;
  layer.router.apply(router_input, runs_, activations_.routed());
  for_each_row(tokens_, int64_t{shape.count} * 8, [&](int64_t row) {
    float* logits = activations_.routed() + row * shape.count;
    if (layer.router_bias != nullptr) add_bias(layer.router_bias, shape.count, logits);
    route(shape, logits, layer.scale, layer.router_correction);
  });
  const auto mixed = static_cast<size_t>(tokens_ * config_.hidden);
  std::fill_n(activations_.mixed(), mixed, 0.0f);
  Bytes bytes{.other = layer.router.work_bytes(tokens_),
              .operations = layer.router.operations(tokens_)};
  // Reused between layers. Moved out while in use: a thread that waits for others may be given work
  // of another model's layer.
  thread_local Chosen kept;
  Chosen chosen = std::move(kept);
  for (size_t i = 0; i < layer.routed.size(); ++i) {
    choose(i, &chosen);
    bytes += add_routed(layer, i, chosen);
  }
  kept = std::move(chosen);
  if (layer.shared.down.outputs() > 0) bytes += add_shared(layer);
  return bytes;
}

void ExpertWork::choose(size_t expert, Chosen* chosen) const {
  chosen->tokens.clear();
  chosen->runs.clear();
  int64_t token = 0;
  for (const RowRun& run : runs_) {
    for (const int64_t end = token + run.rows; token < end; ++token) {
      if (weight_of(token, expert) != 0) chosen->add(token, run.mode);
    }
  }
}

ExpertWork::Bytes ExpertWork::add_routed(const ExpertLayerWeights& layer, size_t expert,
                                         const Chosen& chosen) const {
  const auto rows = static_cast<int64_t>(chosen.tokens.size());
  if (rows == 0) return {};
  const int64_t hidden = config_.hidden;
  const auto row_bytes = static_cast<size_t>(hidden * dtype_bytes(dtype_));
  const auto token_of = [&](int64_t row) {
    return static_cast<size_t>(chosen.tokens[static_cast<size_t>(row)]);
  };
  for_each_row(rows, hidden, [&](int64_t row) {
    std::memcpy(activations_.gathered() + static_cast<size_t>(row) * row_bytes,
                activations_.input() + token_of(row) * row_bytes, row_bytes);
  });
  const Bytes bytes =
      apply(layer.routed[expert], layer.interleaved, activations_.gathered(), chosen.runs);
  for_each_row(rows, hidden, [&](int64_t row) {
    const auto token = static_cast<int64_t>(token_of(row));
    float* result = activations_.result() + row * hidden;
    if (const float* bias = layer.routed[expert].down_bias) add_bias(bias, hidden, result);
    float* mixed = activations_.mixed() + token * hidden;
    const float weight = weight_of(token, expert);
    for (int64_t i = 0; i < hidden; ++i) mixed[i] += weight * result[i];
  });
  return bytes;
}

// Its weights are on the device, wherever those of the routed experts are.
ExpertWork::Bytes ExpertWork::add_shared(const ExpertLayerWeights& layer) const {
  const int64_t hidden = config_.hidden;
  const float* shares = nullptr;
  if (layer.shared_gate.outputs() > 0) {  // the routed experts' weights are no longer needed
    layer.shared_gate.apply(activations_.input(), runs_, activations_.routed());
    shares = activations_.routed();
  }
  const Bytes bytes = apply(layer.shared, false, activations_.input(), runs_, shares);
  for_each_row(tokens_, hidden, [&](int64_t row) {
    add_row(activations_.result() + row * hidden, nullptr, hidden,
            activations_.mixed() + row * hidden);
  });
  return {.other = bytes.routed + bytes.other, .operations = bytes.operations};
}

ExpertWork::Bytes ExpertWork::apply(const ExpertWeights& expert, bool interleaved,
                                    const std::byte* input, RowRuns runs,
                                    const float* shares) const {
  const int64_t rows = rows_of(runs);
  const int64_t width = expert.gate_up.outputs();
  expert.gate_up.apply(input, runs, activations_.result());
  cpu::run_on_rows(ActivateParams{.tokens = rows,
                                  .size = width / 2,
                                  .function = config_.activation,
                                  .clamped = config_.experts.clamped,
                                  .interleaved = interleaved,
                                  .x = activations_.result(),
                                  .bias = expert.gate_up_bias,
                                  .shares = shares,
                                  .dtype = dtype_,
                                  .out = activations_.activated()});
  expert.down.apply(activations_.activated(), runs, activations_.result());
  const uint64_t all = expert.gate_up.work_bytes(rows) + expert.down.work_bytes(rows);
  const uint64_t weights = std::min(all, expert.gate_up.bytes() + expert.down.bytes());
  return {.routed = weights,
          .other = all - weights,
          .operations = expert.gate_up.operations(rows) + expert.down.operations(rows)};
}

}  // namespace fasa
