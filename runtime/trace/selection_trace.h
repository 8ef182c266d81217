// Which tokens a model's selections took, step by step, and which ones a predictor had predicted:
// the recorded behaviour that a synthetic decode replays. docs/trace-format.md describes the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

// One recorded prediction of every layer's set, made `depth` layers before: layers below have none.
struct TracePrediction {
  std::string predictor;  // next-query; what the last step took is known without a record
  int depth = 1;
  int chunks = 0;  // FCs that the prediction was scored with
  int tokens = 0;  // size of the predicted sets
  bool operator==(const TracePrediction&) const = default;
};

struct TraceShape {
  std::string model;
  std::string text;  // what the model went on from, for people
  int layers = 0;
  int kv_heads = 0;
  int budget = 0;  // tokens of a true set, sinks and recent included
  int sinks = 0;
  int recent = 0;
  std::vector<TracePrediction> predictions;
  bool operator==(const TraceShape&) const = default;
};

class SelectionTrace {
 public:
  static constexpr int kSchema = 1;
  static constexpr size_t kMaxPredictions = 16;

  // Throws UsageError for an impossible shape.
  explicit SelectionTrace(TraceShape shape);

  const TraceShape& shape() const { return shape_; }
  int steps() const { return static_cast<int>(contexts_.size()); }
  // Tokens that the step sees, its own included; rising from step to step.
  int32_t context(int step) const { return contexts_[static_cast<size_t>(step)]; }
  // Ascending positions below context(step).
  std::span<const int32_t> true_set(int step, int layer, int kv_head) const {
    return set(step, slot(layer, kv_head));
  }
  // Empty where the layer has none. `prediction`: index in shape().predictions.
  std::span<const int32_t> predicted_set(int step, int layer, int kv_head,
                                         size_t prediction) const {
    return set(step, slot(layer, kv_head) + 1 + prediction);
  }
  bool has_prediction(int layer, size_t prediction) const {
    return layer >= shape_.predictions[prediction].depth;
  }

  // Sets of a step in the file's order: for each layer and KV head the true set, then the
  // predictions.
  size_t slots() const { return slot(shape_.layers, 0); }
  size_t slot(int layer, int kv_head) const {
    const auto head = static_cast<size_t>(layer) * static_cast<size_t>(shape_.kv_heads) +
                      static_cast<size_t>(kv_head);
    return head * (1 + shape_.predictions.size());
  }
  // `sets`: one per slot, empty for a prediction that the layer has not. Throws UsageError for sets
  // that the shape does not allow.
  void add_step(int32_t context, std::span<const std::vector<int32_t>> sets);

  // Throw InputError naming file and offset of what is wrong.
  static SelectionTrace load(const std::string& path);
  static SelectionTrace parse(std::string_view bytes, const std::string& name);
  // Writes aside, then renames. Throws UsageError; check_writable() (output_file.h) finds a bad
  // path before the work.
  void save(const std::string& path) const;
  std::string to_bytes() const;
  bool operator==(const SelectionTrace&) const = default;

 private:
  std::span<const int32_t> set(int step, size_t slot) const {
    const size_t index = static_cast<size_t>(step) * slots() + slot;
    return std::span(positions_).subspan(ends_[index], ends_[index + 1] - ends_[index]);
  }

  TraceShape shape_;
  std::vector<int32_t> contexts_;
  std::vector<int32_t> positions_;  // of all sets, one after the other
  std::vector<size_t> ends_{0};     // [1 + steps x slots]
};

// The trace that ships with the project: of `models` in the installation or the source tree. Throws
// InputError when there is none.
std::string default_selection_trace();

}  // namespace fasa
