#include "runtime/llm/open_prompt.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

bool can_read(const Model& model, const Runtime& runtime) {
  const RuntimeTraits& traits = runtime.traits();
  return model.takes_pieces() && traits.chunks && traits.retention.seen == 0;
}

// The tokens whose residual and rows fit into free memory.
int64_t chunk_that_fits(const Model& model, const Runtime& runtime, SequenceId sequence,
                        int64_t tokens) {
  const MemoryUse use = model.device().memory(MemorySpace::kDevice);
  const uint64_t free = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  const uint64_t rows = runtime.chunk_bytes(sequence, runtime.length(sequence) + tokens);
  const auto token = static_cast<uint64_t>(model.config().hidden) * sizeof(float);
  constexpr uint64_t kMargin = uint64_t{1} << 20;  // tables, alignment
  if (free < rows + kMargin) return 0;
  return static_cast<int64_t>(std::min<uint64_t>((free - rows - kMargin) / token, INT32_MAX));
}

}  // namespace

std::optional<OpenPrompt> OpenPrompt::open(Model& model, Runtime& runtime, SequenceId sequence,
                                           std::span<const int32_t> tokens, int piece, int most) {
  const auto count = std::ssize(tokens);
  if (!can_read(model, runtime) || count < 2 * int64_t{piece}) return std::nullopt;
  const int64_t fits = std::min<int64_t>(most, chunk_that_fits(model, runtime, sequence, count)) /
                       kPageTokens * kPageTokens;
  if (fits < std::min(count, 2 * int64_t{piece})) return std::nullopt;
  try {
    return OpenPrompt(model, runtime, sequence, tokens, piece,
                      static_cast<int>(std::min<int64_t>(fits, count)));
  } catch (const BudgetError&) {
    return std::nullopt;  // memory of another kind
  }
}

OpenPrompt::OpenPrompt(Model& model, Runtime& runtime, SequenceId sequence,
                       std::span<const int32_t> tokens, int piece, int chunk)
    : model_(&model),
      runtime_(&runtime),
      sequence_(sequence),
      tokens_(tokens),
      piece_(piece),
      chunk_(chunk),
      start_(runtime.length(sequence)),
      residual_(model.device().allocate(
          MemorySpace::kDevice,
          static_cast<size_t>(chunk) * static_cast<size_t>(model.config().hidden) * sizeof(float),
          "a prompt's residual stream")) {
  open_chunk();
}

OpenPrompt::OpenPrompt(OpenPrompt&& other) noexcept
    : model_(other.model_),
      runtime_(other.runtime_),
      sequence_(other.sequence_),
      tokens_(other.tokens_),
      piece_(other.piece_),
      chunk_(other.chunk_),
      start_(other.start_),
      residual_(std::move(other.residual_)),
      closed_(other.closed_),
      open_(std::exchange(other.open_, 0)),
      layer_(other.layer_),
      in_layer_(other.in_layer_),
      logits_(other.logits_) {}

OpenPrompt::~OpenPrompt() {
  if (open_ == 0) return;
  try {
    runtime_->drop_chunk(sequence_);
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
  runtime_->open_chunk(sequence_, static_cast<int>(tokens));
  open_ = static_cast<int>(tokens);
  layer_ = in_layer_ = 0;
}

int OpenPrompt::next_piece() const {
  const int left = open_ - in_layer_;
  if (left <= piece_) return left;
  return left - piece_ <= kFewRows ? left : piece_;
}

bool OpenPrompt::work() {
  const int layers = model_->config().layers;
  const int tokens = next_piece();
  const bool last = layer_ + 1 == layers;
  const bool logits = last && closed_ + in_layer_ + tokens == std::ssize(tokens_);
  const auto at = static_cast<size_t>(closed_ + in_layer_);
  logits_ = model_->work(
      *runtime_, {.sequence = sequence_,
                  .layer = layer_,
                  .tokens = tokens_.subspan(at, static_cast<size_t>(tokens)),
                  .start = start_ + closed_ + in_layer_,
                  .residual = residual_.as<float>() + int64_t{in_layer_} * model_->config().hidden,
                  .attends = !last,
                  .logits = logits});
  in_layer_ += tokens;
  if (in_layer_ < open_) return false;
  in_layer_ = 0;
  if (++layer_ < layers) return false;
  runtime_->close_chunk(sequence_);
  closed_ += std::exchange(open_, 0);
  if (closed_ == std::ssize(tokens_)) return true;
  open_chunk();
  return false;
}

int64_t OpenPrompt::done() const {
  const int64_t all = int64_t{open_} * model_->config().layers;
  const int64_t worked = int64_t{layer_} * open_ + in_layer_;
  return closed_ + (all > 0 ? open_ * worked / all : 0);
}

}  // namespace fasa
