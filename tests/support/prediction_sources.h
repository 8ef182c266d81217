// Predictors for tests: one that knows the tape's queries and adds noise, and one that proposes
// random sets.
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "offload/device.h"
#include "scheduler/prefetch/predictor.h"
#include "scheduler/step_settings.h"
#include "tests/support/query_predictor.h"
#include "tests/support/tape.h"

namespace fasa::testing {

// The later layer's true query plus noise, written by an enqueued kernel as a model would do it.
class TapeQueries final : public QueryPredictor {
 public:
  TapeQueries(Device& device, const Geometry& geometry, int max_depth, float error,
              size_t room_tokens = 64)
      : QueryPredictor(device), geometry_(geometry), error_(error) {
    for (int ahead = 0; ahead < max_depth; ++ahead) {
      buffers_.push_back(device.allocate(
          MemorySpace::kDevice,
          room_tokens * static_cast<size_t>(geometry.query_heads * geometry.key_dim) *
              sizeof(float),
          "estimated queries"));
    }
  }
  // Sets the parts of the next step.
  void expect(std::span<const Part> parts) { parts_.assign(parts.begin(), parts.end()); }
  int calls() const { return calls_; }

  int max_depth() const override { return static_cast<int>(buffers_.size()); }
  ConstTensorView estimate(int layer, int ahead, StreamView stream) override {
    ++calls_;
    Buffer& buffer = buffers_.at(static_cast<size_t>(ahead - 1));
    auto* out = buffer.as<float>();
    const int target = layer + ahead;
    device().launch(stream, "estimate", [this, out, target, parts = parts_] {
      float* at = out;
      for (const Part& part : parts) {
        for (int64_t token = part.start; token < part.start + part.tokens; ++token) {
          for (int i = 0; i < geometry_.query_heads * geometry_.key_dim; ++i) {
            const float truth = tape_value(part.seed, target, token, TapeKind::kQuery, i);
            const uint64_t seed = static_cast<uint64_t>((token * 64 + target) * 4096 + i);
            *at++ = truth + error_ * noise(seed * 31 + part.seed);
          }
        }
      }
      return KernelWork{};
    });
    return ConstTensorView::dense(out, DType::kF32, tokens_of(parts_), geometry_.query_heads,
                                  geometry_.key_dim);
  }

 private:
  const Geometry geometry_;
  const float error_;
  std::vector<Buffer> buffers_;
  std::vector<Part> parts_;
  int calls_ = 0;
};

// Random positions in random order, repeated, negative or beyond the end; sizes beyond the
// capacity. `within_window`: no token before the layer's window, as rollback windows require.
class RandomPredictor final : public Predictor {
 public:
  RandomPredictor(Device& device, uint64_t seed, bool within_window = false)
      : device_(device), random_(seed), within_window_(within_window) {}

  int max_depth() const override { return 4; }
  void predict(const PredictedSet& prediction) override {
    SelectParams select = prediction.select;
    if (!within_window_) select.window = 0;
    device_.launch(prediction.compute, "random prediction", [select, seed = random_()] {
      std::mt19937 random(static_cast<uint32_t>(seed));
      const int heads = select.step.layout.kv_heads;
      for (int head = 0; head < select.step.count * heads; ++head) {
        const SequenceDesc& sequence = select.step.sequences[head / heads];
        const int32_t first = first_visible(sequence.start, select.window);
        const int32_t least = first > 0 ? first : -4;
        const auto choices = static_cast<uint32_t>(sequence.end() + 4 - least);
        int32_t* set = select.sets + int64_t{head} * select.selected_capacity;
        for (int i = 0; i < select.selected_capacity; ++i) {
          set[i] = least + static_cast<int32_t>(random() % choices);
          if (random() % 16 == 0) set[i] = random() % 2 == 0 ? INT32_MIN : INT32_MAX;
          if (i > 0 && random() % 8 == 0) set[i] = set[i - 1];
        }
        const uint32_t size = random() % 6;
        select.selected_sizes[head] = size == 0   ? INT32_MAX
                                      : size == 1 ? -3
                                                  : select.selected_capacity;
      }
      return KernelWork{};
    });
  }

 private:
  Device& device_;
  std::mt19937_64 random_;
  bool within_window_;
};

}  // namespace fasa::testing
