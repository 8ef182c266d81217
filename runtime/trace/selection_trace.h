// The tokens that a model selected in each step, and their ranks. A synthetic decode replays them.
// File format: docs/trace-format.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

struct TraceShape {
  std::string model;
  std::string text;  // description of the text that the model continued
  int layers = 0;
  int kv_heads = 0;
  int budget = 0;  // tokens of a true set, with sinks and recent ones
  int sinks = 0;
  int recent = 0;
  // The ranking of a head's competing tokens, in bands: numbers of tokens up to each band's end,
  // one of them set_ranked(). Empty: no ranking.
  std::vector<int> bands;

  // Tokens of a true set that compete.
  int set_ranked() const { return budget - sinks - recent; }
  bool operator==(const TraceShape&) const = default;
};

class SelectionTrace {
 public:
  static constexpr int kSchema = 4;
  static constexpr size_t kMaxBands = 32;

  // Throws UsageError for an invalid shape.
  explicit SelectionTrace(TraceShape shape);

  const TraceShape& shape() const { return shape_; }
  int steps() const { return static_cast<int>(contexts_.size()); }
  // Tokens visible to the step, its own included; ascending over steps.
  int32_t context(int step) const { return contexts_[static_cast<size_t>(step)]; }
  // Ascending positions below context(step).
  std::span<const int32_t> true_set(int step, int layer, int kv_head) const {
    return set(step, slot(layer, kv_head));
  }
  // The best competing tokens: band by band, best band first, ascending positions in a band. The
  // first set_ranked() are the true set's.
  std::span<const int32_t> ranking(int step, int layer, int kv_head) const {
    return set(step, slot(layer, kv_head) + 1);
  }
  // The ranking behind the true set.
  std::span<const int32_t> runners_up(int step, int layer, int kv_head) const {
    const auto ranked = ranking(step, layer, kv_head);
    return ranked.subspan(std::min(ranked.size(), static_cast<size_t>(shape_.set_ranked())));
  }
  // Number of sets in a step: for each layer and KV head the true set, then the ranking.
  size_t slots() const { return slot(shape_.layers, 0); }
  size_t slot(int layer, int kv_head) const {
    const auto head = static_cast<size_t>(layer) * static_cast<size_t>(shape_.kv_heads) +
                      static_cast<size_t>(kv_head);
    return 2 * head;
  }
  // `sets`: one per slot, empty for a ranking that the shape lacks. Throws UsageError for sets that
  // the shape does not allow.
  void add_step(int32_t context, std::span<const std::vector<int32_t>> sets);

  // Throw InputError naming file, offset and error.
  static SelectionTrace load(const std::string& path);
  static SelectionTrace parse(std::string_view bytes, const std::string& name);
  // Writes atomically (temporary file, then rename). Throws UsageError; check_writable()
  // (output_file.h) finds a bad path earlier.
  void save(const std::string& path) const;
  std::string to_bytes() const;
  bool operator==(const SelectionTrace&) const = default;

 private:
  void check_ranking(std::span<const int32_t> ranking, std::span<const int32_t> set,
                     int32_t context) const;
  std::span<const int32_t> set(int step, size_t slot) const {
    const size_t index = static_cast<size_t>(step) * slots() + slot;
    return std::span(positions_).subspan(ends_[index], ends_[index + 1] - ends_[index]);
  }

  TraceShape shape_;
  std::vector<int32_t> contexts_;
  std::vector<int32_t> positions_;  // all sets, concatenated
  std::vector<size_t> ends_{0};     // [1 + steps x slots]
};

// The default trace, a language model's: in `models` of the installation or source tree. Throws
// InputError if it is missing.
std::string default_selection_trace();

}  // namespace fasa
