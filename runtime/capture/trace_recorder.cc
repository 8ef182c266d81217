#include "runtime/capture/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/capture/slice_index.h"
#include "runtime/llm/generation/sampler.h"

namespace fasa {
namespace {

// Ends of the ranking's bands, in quarters of the competing tokens of a set.
constexpr int kBandQuarters[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16};

int32_t budget_of(const Config& config) {
  return static_cast<int32_t>(config.selection.fac_tokens[0].tokens);
}

TraceShape shape_of(const Config& config, const Geometry& geometry, const TraceOptions& options) {
  TraceShape shape{.model = options.model_name,
                   .text = options.text_name,
                   .layers = geometry.layers,
                   .kv_heads = geometry.kv_heads,
                   .budget = budget_of(config),
                   .sinks = config.selection.sinks,
                   .recent = config.selection.recent,
                   .bands = {}};
  for (const int quarters : kBandQuarters) {
    const auto end = static_cast<int>(int64_t{quarters} * shape.set_ranked() / 4);
    if (end > (shape.bands.empty() ? 0 : shape.bands.back())) shape.bands.push_back(end);
  }
  return shape;
}

// Follows a generation: keeps its own slices, and selects with each query.
class Recorder final : public LayerObserver {
 public:
  Recorder(const Model& model, const Config& config, const TraceOptions& options, int64_t tokens)
      : geometry_(model.config().geometry()),
        trace_(shape_of(config, geometry_, options)),
        ranked_dims_(options.ranked_dims.empty() ? all_slice_dims(geometry_) : options.ranked_dims),
        exact_(geometry_,
               index_shape(model, config, config.effective_tip_chunks(geometry_.chunks()), tokens),
               ranked_dims_),
        sets_(trace_.slots()) {
    // Reserved now, because observers must not throw.
    for (auto& set : sets_) set.reserve(static_cast<size_t>(largest_set()));
  }

  std::vector<int16_t> slice_dims(int chunks) const {
    const auto heads = static_cast<size_t>(geometry_.layers * geometry_.kv_heads);
    const auto all = static_cast<int64_t>(ranked_dims_.size() / heads);
    std::vector<int16_t> dims;
    for (auto head = ranked_dims_.begin(); head != ranked_dims_.end(); head += all) {
      dims.insert(dims.end(), head, head + 2 * chunks);
    }
    return dims;
  }
  void start_recording() { recording_ = true; }
  void finish_step(int64_t context) {
    trace_.add_step(static_cast<int32_t>(context), sets_);
    for (auto& set : sets_) set.clear();
  }
  SelectionTrace take() { return std::move(trace_); }

  void on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                int64_t start_position) override {
    exact_.append(layer, k, v, start_position);
    position_ = start_position;
    if (!recording_) return;
    exact_.select(layer, q, position_, trace_.shape().budget);
    for (int head = 0; head < geometry_.kv_heads; ++head) {
      const auto set = exact_.set(head);
      sets_[trace_.slot(layer, head)].assign(set.begin(), set.end());
    }
    rank(layer, q);
  }

 private:
  int32_t largest_set() const { return trace_.shape().budget + trace_.shape().bands.back(); }
  SliceIndexShape index_shape(const Model& model, const Config& config, int chunks,
                              int64_t tokens) const {
    return {.row_dtype = config.placement.row_dtype.value_or(model.config().row_dtype()),
            .slice_dtype = config.effective_slice_dtype(),
            .chunks = chunks,
            .fine_chunks = config.effective_fine_chunks(),
            .sinks = config.selection.sinks,
            .recent = config.selection.recent,
            .tokens = tokens,
            .largest_set = largest_set()};
  }
  bool competes(int32_t position) const {
    return position >= trace_.shape().sinks && position <= position_ - trace_.shape().recent;
  }
  // Selects as far as each band's end; a band is what the select before did not take.
  void rank(int layer, ConstTensorView q) {
    const TraceShape& shape = trace_.shape();
    const std::vector<int32_t>& set = sets_[trace_.slot(layer, 0)];
    const auto competing = static_cast<int>(
        std::ranges::count_if(set, [&](int32_t position) { return competes(position); }));
    const int others = static_cast<int>(set.size()) - competing;
    for (const int end : shape.bands) {
      // Behind the set: without tokens of it that have no band, because a window hides the sinks.
      const bool behind = end > shape.set_ranked();
      const int more = behind ? std::max(0, competing - shape.set_ranked()) : 0;
      exact_.select(layer, q, position_, end + others + more);
      for (int head = 0; head < geometry_.kv_heads; ++head) {
        const auto& true_set = sets_[trace_.slot(layer, head)];
        auto& ranking = sets_[trace_.slot(layer, head) + 1];
        const std::span earlier(ranking.data(), ranking.size());  // capacity was reserved
        for (const int32_t position : exact_.set(head)) {
          if (!competes(position) || std::ranges::count(earlier, position) > 0) continue;
          if (behind && std::ranges::binary_search(true_set, position)) continue;
          ranking.push_back(position);
        }
      }
    }
  }

  const Geometry geometry_;
  SelectionTrace trace_;
  const std::vector<int16_t> ranked_dims_;
  SliceIndex exact_;
  std::vector<std::vector<int32_t>> sets_;  // of the step, by slot
  int64_t position_ = 0;
  bool recording_ = false;
};

struct Generation {
  Model& model;
  Runtime& runtime;
  SequenceId sequence;
  Recorder& recorder;
  const TraceOptions& options;

  // Returns the most likely first token after the prompt.
  int32_t prefill(std::span<const int32_t> prompt, int64_t chunk) const {
    const auto tokens = static_cast<int64_t>(prompt.size());
    int32_t token = 0;
    for (int64_t done = 0; done < tokens;) {
      const int64_t count = std::min(chunk, tokens - done);
      const StepSequence step[] = {{sequence, static_cast<int>(count), StepMode::kPrefill}};
      const bool last = done + count == tokens;
      const auto logits =
          model.step(runtime, prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
                     step, {.no_logits = !last, .observer = &recorder});
      if (last) token = Sampler({}).next(logits);
      done += count;
      if (options.on_token) options.on_token(done, tokens + options.steps);
    }
    return token;
  }
};

}  // namespace

void TraceOptions::validate(const Config& config, const Geometry& geometry) const {
  config.validate();
  config.validate_for(geometry);
  const Config::Selection& selection = config.selection;
  if (selection.kind != SelectionKind::kFasa || selection.fac_tokens.size() != 1 ||
      selection.fac_tokens[0].tokens == 0) {
    throw UsageError(
        "recording a trace needs the selection fasa and one fac_tokens count for all layers; "
        "choose a fasa preset and --fac-tokens N");
  }
  if (geometry.has_window_heads()) {
    throw UsageError(
        "recording a trace needs KV heads of one shape; this model's layers with a window have "
        "another");
  }
  require(selection.fac_tokens[0].tokens <= 1 << 20, "fac_tokens", selection.fac_tokens[0].tokens,
          "at most 1048576");
  require(steps >= 1, "steps", steps, "1 or more");
  require(prefill_chunk >= 1, "prefill_chunk", prefill_chunk, "1 or more");
  const auto all = static_cast<size_t>(geometry.layers * geometry.kv_heads * geometry.key_dim);
  require(ranked_dims.empty() || ranked_dims.size() == all, "ranked_dims", ranked_dims.size(),
          fmt::format("{} dimensions", all));
}

SelectionTrace record_selection_trace(Model& model, const Config& config,
                                      std::span<const int32_t> prompt,
                                      const TraceOptions& options) {
  const Geometry geometry = model.config().geometry();
  options.validate(config, geometry);
  const auto tokens = static_cast<int64_t>(prompt.size());
  const int64_t total = tokens + options.steps;
  require(tokens >= 1, "prompt tokens", tokens, "1 or more");
  require(total <= model.config().max_positions, "prompt + steps", total,
          fmt::format("at most {} tokens, the number of positions of the model",
                      model.config().max_positions));

  Recorder recorder(model, config, options, total);
  const int chunks = config.effective_tip_chunks(geometry.chunks());
  Runtime runtime(model.device(), config, geometry,
                  config.placement.row_dtype.value_or(model.config().row_dtype()),
                  recorder.slice_dims(chunks), total);
  const SequenceId sequence = runtime.create();
  const int64_t chunk = std::min<int64_t>(options.prefill_chunk, tokens);
  runtime.reserve(sequence, total, static_cast<int>(chunk));
  model.reserve(static_cast<int>(chunk));

  const Generation generation{model, runtime, sequence, recorder, options};
  int32_t token = generation.prefill(prompt, chunk);
  recorder.start_recording();
  const StepSequence step[] = {{sequence, 1, StepMode::kDecode}};
  for (int64_t context = tokens + 1; context <= total; ++context) {
    token = Sampler({}).next(model.step(runtime, {&token, 1}, step, {.observer = &recorder}));
    recorder.finish_step(context);
    if (options.on_token) options.on_token(context, total);
  }
  return recorder.take();
}

}  // namespace fasa
