#include "runtime/plan/prompt_plan.h"

#include <algorithm>

namespace fasa {
namespace {

// As OpenPrompt chooses the chunk; 0: the prompt is read by steps. `experts`: bytes of a layer's,
// copied to the device.
int64_t chunk_by_layers(const StepSettings& settings, const PromptRequest& request, int piece,
                        uint64_t experts) {
  if (settings.group().retention.seen > 0 || settings.selection_evicts) return 0;
  if (request.tokens < 2 * int64_t{piece}) return 0;
  const bool over_link =
      settings.access_of(request.tokens, settings.max_hot_rows) == RowAccess::kOverLink;
  const int64_t pages = over_link ? pages_of(request.tokens) : 0;
  const uint64_t taken = static_cast<uint64_t>(pages * settings.layout.row_layer_bytes()) + experts;
  const uint64_t free = request.left(piece);
  const auto window_rows =
      static_cast<uint64_t>(settings.window_rows.row_block_bytes() / kPageTokens);
  const int64_t layer_inputs =
      request.model.layer_embeddings / std::max<int64_t>(request.model.vocab, 1);
  const uint64_t token =
      static_cast<uint64_t>(request.model.hidden + layer_inputs) * sizeof(float) + window_rows;
  if (free <= taken) return 0;
  const auto longest = static_cast<uint64_t>(longest_chunk(!over_link, window_rows));
  const auto most = static_cast<int64_t>(std::min<uint64_t>((free - taken) / token, longest) /
                                         kPageTokens * kPageTokens);
  if (most < std::min<int64_t>(request.tokens, 2 * int64_t{piece})) return 0;
  return std::min(most, request.tokens);
}

}  // namespace

// Layer by layer where there is memory; else in steps as long as memory allows, with long waves
// from what is left.
PromptPlan plan_prompt(const StepSettings& settings, const MachineRates& machine,
                       const PromptRequest& request) {
  PromptPlan plan;
  plan.chunk = request.chunk.value_or(kMinPrefillChunk);
  if (!request.chunk && !machine.unified) {
    plan.chunk =
        largest_prefill_chunk(request.tokens, [&](int chunk) { return request.left(chunk) > 0; });
  }
  PromptLoad load{.tokens = request.tokens,
                  .chunk = static_cast<int>(std::min<int64_t>(plan.chunk, request.tokens)),
                  .weights = request.weights};
  const int piece = request.chunk ? plan.chunk : std::min(plan.chunk, kPieceTokens);
  const uint64_t experts = request.weights.expert_bytes;
  int64_t whole = chunk_by_layers(settings, request, piece, experts);
  load.copies_experts = whole > 0 && experts > 0;
  if (whole == 0 && experts > 0) whole = chunk_by_layers(settings, request, piece, 0);
  if (whole > 0) {
    load.chunk = plan.chunk = static_cast<int>(whole);
    load.piece = plan.piece = piece;
  } else if (request.left(load.chunk) >= 2 * wave_bytes(settings, kWidePages)) {
    load.wave_pages = kWidePages;
  }
  static_cast<PromptCost&>(plan) = prompt_cost(settings, machine, load);
  if (machine.operations == 0) plan.seconds = plan.products = 0;
  return plan;
}

}  // namespace fasa
