#include "runtime/lab/analyze/selection_attention.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "runtime/capture/attention_capture.h"
#include "runtime/lab/analyze/head_query.h"
#include "runtime/llm/owned_sequence.h"

namespace fasa {
namespace {

constexpr int64_t kSinks = 4, kRecent = 16;
constexpr int kChunk = 512;

// The sets of decode steps, by layer and position: [kv_heads] token positions. Layers with full
// attention have none.
class Sets {
 public:
  explicit Sets(SetObserver& observer) : observer_(observer) {
    observer_.observe([this](const ResolveParams& params) { keep(params); });
  }
  ~Sets() { observer_.observe(nullptr); }
  Sets(const Sets&) = delete;  // the observer holds its address
  Sets& operator=(const Sets&) = delete;

  const std::vector<int32_t>* find(int layer, int64_t position, int kv_head) const {
    const auto found = sets_.find({layer, position});
    return found == sets_.end() ? nullptr : &found->second[static_cast<size_t>(kv_head)];
  }

 private:
  void keep(const ResolveParams& params) {
    const int heads = params.step.layout.kv_heads;
    const SequenceDesc& sequence = params.step.sequences[0];
    auto& sets = sets_[{params.step.attending_layer(), int64_t{sequence.start}}];
    sets.clear();
    for (int head = 0; head < heads; ++head) {
      const int32_t* set = params.sets + int64_t{head} * params.selected_capacity;
      sets.emplace_back(set, set + params.selected_sizes[head]);
    }
  }

  SetObserver& observer_;
  std::map<std::pair<int, int64_t>, std::vector<std::vector<int32_t>>> sets_;
};

CapturedAttention attention_of(const HeadSamples& samples, size_t query, int head,
                               const std::vector<int32_t>* set) {
  const auto weights = HeadQuery(samples, query, head).weights();
  const int64_t first = samples.visible_first(query), end = samples.visible_end(query);
  const auto weight_of = [&](int64_t token) {
    return double{weights[static_cast<size_t>(token - first)]};
  };
  const auto is_distant = [&](int64_t token) { return token >= kSinks && token < end - kRecent; };
  CapturedAttention attention{.queries = 1};
  for (int64_t token = first; token < end; ++token) {
    attention.all_distant += is_distant(token) ? weight_of(token) : 0;
  }
  if (set == nullptr) {
    attention.attention = 1;
    attention.distant = attention.all_distant;
    return attention;
  }
  for (const int32_t token : *set) {
    if (token < first || token >= end) continue;
    attention.attention += weight_of(token);
    if (is_distant(token)) attention.distant += weight_of(token);
  }
  return attention;
}

}  // namespace

SelectionAttention measure_selection(Model& model, SetObserver& observer, const Config& config,
                                     const std::vector<int16_t>& slice_dims,
                                     const AnalysisText& text, int text_steps) {
  const Geometry geometry = model.config().geometry();
  const std::span<const int32_t> ids(text.data.ids);
  const auto total = static_cast<int64_t>(ids.size());
  const int64_t prefilled = std::max<int64_t>(1, text.text_end - text_steps);
  std::vector<int32_t> positions(static_cast<size_t>(total - prefilled));
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(prefilled));
  AttentionCapture capture(geometry, total, positions);
  Sets sets(observer);
  Runtime runtime(model.device(), config, geometry,
                  config.placement.row_dtype.value_or(model.config().row_dtype()), slice_dims,
                  total);
  const OwnedSequence sequence(runtime);
  model.reserve(kChunk);
  runtime.reserve(sequence.id(), total, kChunk);
  for (int64_t done = 0; done < total;) {
    const bool decode = done >= prefilled;
    const int count = decode ? 1 : static_cast<int>(std::min<int64_t>(kChunk, prefilled - done));
    const std::array step{
        StepSequence{sequence.id(), count, decode ? StepMode::kDecode : StepMode::kPrefill}};
    model.step(runtime, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count)), step,
               {.no_logits = true, .observer = &capture});
    done += count;
  }
  SelectionAttention result;
  result.heads.assign(static_cast<size_t>(geometry.layers),
                      std::vector<CapturedAttention>(static_cast<size_t>(geometry.query_heads)));
  for (int layer = 0; layer < geometry.layers; ++layer) {
    auto& heads = result.heads[static_cast<size_t>(layer)];
    for (int kv_head = 0; kv_head < geometry.kv_heads; ++kv_head) {
      const HeadSamples samples = capture.take(layer, kv_head);
      for (size_t query = 0; query < positions.size(); ++query) {
        const int64_t position = positions[query];
        CapturedAttention& sums = position < text.text_end ? result.text : result.probes;
        for (int head = 0; head < geometry.gqa_group(); ++head) {
          const CapturedAttention attention =
              attention_of(samples, query, head, sets.find(layer, position, kv_head));
          sums.add(attention);
          heads[static_cast<size_t>(kv_head * geometry.gqa_group() + head)].add(attention);
        }
      }
    }
  }
  return result;
}

}  // namespace fasa
