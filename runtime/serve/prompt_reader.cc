#include "runtime/serve/prompt_reader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/serve/prefill_budget.h"

namespace fasa::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMinInPlaceChunk = 2 * kPageTokens;
constexpr double kFreeShare = 0.875;  // of free memory, that new requests find some

// The keys for which a token's attention takes as many operations as the rest of a layer.
double even_keys(const ModelConfig& config) {
  int64_t parameters = config.read_mlp_parameters();
  double per_key = 0;  // of a layer that attends to keys
  for (int layer = 0; layer < config.layers; ++layer) {
    parameters += config.attention_parameters(layer);
    if (config.is_linear(layer)) continue;
    const HeadShape heads = config.heads(layer);
    per_key += static_cast<double>(config.query_heads) * (heads.key_dim + heads.value_dim) /
               config.attention_layers();
  }
  return std::max(1.0, static_cast<double>(parameters) / config.layers / std::max(per_key, 1.0));
}

// On processors laying a page out costs as much as the products of about 16 query rows.
double layout_tokens(const Model& model) {
  return model.device().unified() ? 16.0 * model.config().kv_heads / model.config().query_heads : 0;
}

int min_piece(const Device& device) { return device.unified() ? 4 : 2 * OpenPrompt::kFewRows; }

}  // namespace

PromptReader::PromptReader(Model& model, Runtime& runtime, const EngineOptions& options)
    : model_(model),
      runtime_(runtime),
      piece_(options.prefill_chunk),
      idle_seconds_(options.idle_step_seconds),
      possible_(OpenPrompt::possible(runtime) && piece_ >= min_piece(model.device())),
      costs_(min_piece(model.device()), piece_, even_keys(model.config()), layout_tokens(model)) {}

bool PromptReader::open(ActiveChoice& choice) {
  close();
  const int64_t first = choice.log.size();
  const int64_t left = choice.prefill_left();
  const bool in_place = runtime_.prompts().chunk_bytes(*choice.sequence, first + left) == 0;
  const int chunk =
      std::min(in_place ? in_place_chunk(first) : kMaxChunkTokens, choice.chunk_limit);
  const auto tokens =
      choice.wanted.ids().subspan(static_cast<size_t>(first), static_cast<size_t>(left));
  auto opened =
      OpenPrompt::open(model_, runtime_, *choice.sequence, tokens,
                       {.piece = in_place ? std::min(piece_, std::max(chunk / 2, 1)) : piece_,
                        .chunk = chunk,
                        .free_share = kFreeShare,
                        .logits = left == choice.prompt_left() && !choice.next});
  if (!opened) return false;
  open_.emplace(std::move(*opened));
  choice_ = &choice;
  return true;
}

// Where rows are read in place, chunks longer than two pieces save nothing and are lost when
// cancelled.
int PromptReader::in_place_chunk(int64_t keys) const {
  const int piece = costs_.tokens({.keys = keys}, idle_seconds_, PrefillBudget::kIdleUsefulShare);
  return std::clamp(2 * piece, kMinInPlaceChunk, kMaxServedChunk);
}

double PromptReader::chunk_left() const {
  return in_chunk() ? static_cast<double>(open_->chunk_end()) - open_->done() : 0;
}

double PromptReader::done() const {
  return open_ ? open_->done() - static_cast<double>(open_->closed()) : 0;
}

PieceCosts::Piece PromptReader::next_piece() const {
  if (open_->in_linear_layer()) return {};
  PieceCosts::Piece piece{.keys = open_->position()};
  if (open_->begins_layer()) {
    piece.loading =
        runtime_.info(*choice_->sequence).read_back_seconds / model_.config().attention_layers();
  }
  return piece;
}

PromptReader::Worked PromptReader::work(double seconds, double useful) {
  Worked worked;
  try {
    work_on_pieces(seconds, useful, &worked);
    return worked;
  } catch (const BudgetError&) {
    give_up();
    return {};
  } catch (...) {
    close();
    throw;
  }
}

void PromptReader::work_on_pieces(double seconds, double useful, Worked* worked) {
  constexpr double kRest = 0.125;  // of the time, too little for another piece
  const int64_t closed = open_->closed();
  const double before = open_->done();
  const auto begin = Clock::now();
  double used = 0;
  do {
    const PieceCosts::Piece piece = next_piece();
    const int tokens = costs_.tokens(piece, seconds - used, useful);
    if (used > 0 && tokens > costs_.tokens(piece, seconds - used, 0)) break;
    const bool is_usual = !open_->in_last_layer();  // the last layer's are cheaper
    worked->whole = open_->work(tokens);
    const double now = seconds_between(begin, Clock::now());
    if (is_usual) costs_.worked(piece, open_->last_piece(), now - used);
    used = now;
  } while (open_->in_chunk() && used < (1 - kRest) * seconds);
  worked->tokens = open_->done() - before;
  worked->closed = static_cast<int>(open_->closed() - closed);
  worked->logits = open_->logits();
}

void PromptReader::leave(const ActiveChoice& choice) {
  if (reads(choice)) close();
}

bool PromptReader::give_up() {
  if (!open_) return false;
  choice_->chunk_limit = open_->chunk() / 2;
  close();
  return true;
}

void PromptReader::close() {
  open_.reset();
  choice_ = nullptr;
}

}  // namespace fasa::serve
