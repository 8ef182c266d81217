#include "runtime/llm/generation/open_prompt.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr uint64_t kMargin = uint64_t{1} << 20;  // tables, alignment

uint64_t residual_bytes(const Model& model) {  // of a token, with its inputs per layer
  return static_cast<uint64_t>(model.config().hidden + model.config().layer_inputs()) *
         sizeof(float);
}

// Rows of layers with a window stay until the chunk has gone through all layers.
uint64_t chunk_token_bytes(const Model& model, const Runtime& runtime) {
  return residual_bytes(model) + runtime.traits().page.window_rows / kPageTokens;
}

}  // namespace

// If all layers have a window, steps read few rows.
bool OpenPrompt::possible(const Runtime& runtime) {
  const RuntimeTraits& traits = runtime.traits();
  const bool reads_all = traits.retention.seen == 0 || traits.page.window_rows > 0;
  return traits.chunks && reads_all;
}

std::optional<OpenPrompt> OpenPrompt::open(Model& model, Runtime& runtime, SequenceId sequence,
                                           std::span<const int32_t> tokens,
                                           const PromptLimits& limits) {
  const auto count = std::ssize(tokens);
  if (!possible(runtime) || count < limits.prompt) return std::nullopt;
  const Room found = room(model, runtime, sequence, count, limits);
  if (found.tokens == 0) return std::nullopt;
  try {
    return OpenPrompt(model, runtime, sequence, tokens, limits, found);
  } catch (const BudgetError&) {
    return std::nullopt;  // memory of another kind
  }
}

// The tokens whose residual and rows fit into free memory, with a layer's experts if two pieces fit
// beside them: each piece would read nearly all of them over the link.
OpenPrompt::Room OpenPrompt::room(const Model& model, const Runtime& runtime, SequenceId sequence,
                                  int64_t tokens, const PromptLimits& limits) {
  const auto free = static_cast<uint64_t>(static_cast<double>(runtime.prompts().chunk_room()) *
                                          limits.free_share);
  const uint64_t rows = runtime.prompts().chunk_bytes(sequence, runtime.length(sequence) + tokens);
  const int64_t most =
      std::min(limits.chunk, longest_chunk(rows == 0, runtime.traits().page.window_rows));
  const auto room_beside = [&](uint64_t experts) -> Room {
    const uint64_t taken = rows + experts + kMargin;
    const uint64_t fits = (free - std::min(free, taken)) / chunk_token_bytes(model, runtime);
    int64_t chunk = std::min(static_cast<int64_t>(fits), most);
    if (chunk < tokens) chunk = chunk / kPageTokens * kPageTokens;
    if (chunk < std::min(tokens, 2 * int64_t{limits.piece})) return {};
    return {std::min(chunk, tokens), experts};
  };
  const Room whole = room_beside(model.layer_expert_bytes());
  return whole.tokens > 0 ? whole : room_beside(0);
}

OpenPrompt::OpenPrompt(Model& model, Runtime& runtime, SequenceId sequence,
                       std::span<const int32_t> tokens, const PromptLimits& limits,
                       const Room& room)
    : model_(&model),
      runtime_(&runtime),
      sequence_(sequence),
      tokens_(tokens),
      piece_(limits.piece),
      chunk_(static_cast<int>(room.tokens)),
      wants_logits_(limits.logits),
      drafts_(limits.drafts),
      start_(runtime.length(sequence)) {
  const auto chunk = static_cast<uint64_t>(chunk_);
  runtime.prompts().make_chunk_room(
      chunk * chunk_token_bytes(model, runtime) + room.experts + kMargin +
      runtime.prompts().chunk_bytes(sequence, start_ + std::ssize(tokens)));
  const auto take = [&](uint64_t bytes, const char* purpose) {
    return model.device().allocate(MemorySpace::kDevice, bytes, purpose);
  };
  residual_ = take(chunk * residual_bytes(model), "a prompt's residual stream");
  if (room.experts > 0) experts_ = take(room.experts, "a layer's experts");
  open_chunk();
}

OpenPrompt::OpenPrompt(OpenPrompt&& other) noexcept
    : model_(other.model_),
      runtime_(other.runtime_),
      sequence_(other.sequence_),
      tokens_(other.tokens_),
      piece_(other.piece_),
      chunk_(other.chunk_),
      wants_logits_(other.wants_logits_),
      drafts_(other.drafts_),
      start_(other.start_),
      residual_(std::move(other.residual_)),
      experts_(std::move(other.experts_)),
      closed_(other.closed_),
      open_(std::exchange(other.open_, 0)),
      layer_(other.layer_),
      in_layer_(other.in_layer_),
      last_piece_(other.last_piece_),
      logits_(other.logits_) {}

OpenPrompt::~OpenPrompt() {
  if (open_ == 0) return;
  try {
    runtime_->prompts().drop_chunk(sequence_);
  } catch (const std::exception&) {
    // A failed device was reported by the call that failed.
  }
}

// The odd chunk is the first, where it costs least; all but the last end with a page.
void OpenPrompt::open_chunk() {
  const auto left = std::ssize(tokens_) - closed_;
  const int64_t others = (left - 1) / chunk_;
  int64_t tokens = left - others * chunk_;
  if (others > 0)
    tokens = std::min<int64_t>((tokens + kPageTokens - 1) / kPageTokens * kPageTokens, chunk_);
  runtime_->prompts().open_chunk(sequence_, static_cast<int>(tokens));
  open_ = static_cast<int>(tokens);
  layer_ = in_layer_ = 0;
}

// A last piece of few rows is joined to the one before it.
int OpenPrompt::next_piece(int tokens) const {
  const int left = open_ - in_layer_;
  tokens = std::clamp(tokens, 1, piece_);
  return left - tokens <= kFewRows ? std::min(left, piece_ + kFewRows) : tokens;
}

bool OpenPrompt::work(int most) {
  if (open_ == 0) open_chunk();
  const int tokens = next_piece(most);
  const bool last = in_last_layer();
  const bool logits = wants_logits_ && last && closed_ + in_layer_ + tokens == std::ssize(tokens_);
  const auto at = static_cast<size_t>(closed_ + in_layer_);
  const ModelConfig& config = model_->config();
  float* const states = last && drafts_ != nullptr ? drafts_->step_states(tokens) : nullptr;
  float* const layer_inputs = residual_.as<float>() + int64_t{chunk_} * config.hidden;
  logits_ = model_->work(*runtime_,
                         {.sequence = sequence_,
                          .layer = layer_,
                          .tokens = tokens_.subspan(at, static_cast<size_t>(tokens)),
                          .start = position(),
                          .residual = residual_.as<float>() + int64_t{in_layer_} * config.hidden,
                          .layer_inputs = layer_inputs + int64_t{in_layer_} * config.layer_inputs(),
                          .experts = experts_.data(),
                          .first = in_layer_ == 0,
                          .attends = !last,
                          .logits = logits,
                          .states = states});
  if (last && drafts_ != nullptr) drafts_->computed(states, tokens);
  last_piece_ = tokens;
  in_layer_ += tokens;
  if (in_layer_ < open_) return false;
  in_layer_ = 0;
  if (++layer_ < model_->config().layers) return false;
  runtime_->prompts().close_chunk(sequence_);
  closed_ += std::exchange(open_, 0);
  layer_ = 0;
  return closed_ == std::ssize(tokens_);
}

double OpenPrompt::done() const {
  const auto worked = static_cast<double>(int64_t{layer_} * open_ + in_layer_);
  return static_cast<double>(closed_) + worked / model_->config().layers;
}

}  // namespace fasa
