// A prompt that a model reads layer by layer: in chunks whose residual stream is kept, each layer
// over the whole chunk, in pieces. Rows on the host come back once a layer and chunk, not once a
// step. The bits are those of steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/api/prefill_chunk.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/draft_source.h"

namespace fasa {

struct PromptLimits {
  int piece = kPieceTokens;  // tokens of a piece; it may have OpenPrompt::kFewRows more
  int chunk = kMaxChunkTokens;
  int64_t prompt = 0;             // shorter ones are read by steps
  double free_share = 1;          // of the memory that is free
  bool logits = true;             // of the last token
  DraftSource* drafts = nullptr;  // gets the tokens' states; may be null
};

class OpenPrompt {
 public:
  // Some kernels compute up to so many rows in another way, with other bits.
  static constexpr int kFewRows = 16;

  // `tokens` are appended to the sequence, whose memory is reserved. Takes free memory for the
  // residual, and that of device copies of rows; none: there is not enough for two pieces or the
  // whole prompt, or model or runtime cannot (windows in all layers, evicting selections): read it
  // by steps.
  // All arguments outlive it.
  static std::optional<OpenPrompt> open(Model& model, Runtime& runtime, SequenceId sequence,
                                        std::span<const int32_t> tokens,
                                        const PromptLimits& limits);
  // Whether prompts can be read so, memory aside.
  static bool possible(const Runtime& runtime);
  OpenPrompt(OpenPrompt&& other) noexcept;
  OpenPrompt& operator=(OpenPrompt&&) = delete;  // nothing needs it
  ~OpenPrompt();                                 // drops a chunk under way; whole chunks stay

  // Works on a piece, of the limit's size or about `tokens` tokens. Returns true once the sequence
  // has all tokens, with the last one's logits. Throws what steps throw; then only the destructor
  // may follow.
  bool work() { return work(piece_); }
  bool work(int tokens);
  std::span<const float> logits() const { return logits_; }
  int last_piece() const { return last_piece_; }  // its tokens
  int chunk() const { return chunk_; }            // tokens of a chunk, but the first and the last
  // Tokens done, a chunk under way by its layers.
  double done() const;
  int64_t closed() const { return closed_; }  // in whole chunks: the sequence has them
  bool in_chunk() const { return open_ > 0; }
  int64_t chunk_end() const { return closed_ + open_; }
  // The next piece: the sequence's tokens before it, and where it is in the model.
  int64_t position() const { return start_ + closed_ + in_layer_; }
  bool begins_layer() const { return in_layer_ == 0; }
  bool in_linear_layer() const { return model_->config().is_linear(layer_); }
  bool in_last_layer() const { return layer_ + 1 == model_->config().layers; }

 private:
  struct Room {
    int64_t tokens = 0;    // of a chunk
    uint64_t experts = 0;  // bytes for a layer's experts
  };
  static Room room(const Model& model, const Runtime& runtime, SequenceId sequence, int64_t tokens,
                   const PromptLimits& limits);
  OpenPrompt(Model& model, Runtime& runtime, SequenceId sequence, std::span<const int32_t> tokens,
             const PromptLimits& limits, const Room& room);
  void open_chunk();
  int next_piece(int tokens) const;

  Model* model_;
  Runtime* runtime_;
  SequenceId sequence_;
  std::span<const int32_t> tokens_;
  int piece_;
  int chunk_;
  bool wants_logits_;
  DraftSource* drafts_;
  int64_t start_;       // the sequence's length before the prompt
  Buffer residual_;     // and inputs per layer
  Buffer experts_;      // a layer's, if they are on the host and there is memory
  int64_t closed_ = 0;  // tokens in whole chunks
  int open_ = 0;        // tokens of the chunk under way; 0: none
  int layer_ = 0;       // its layer, the model's
  int in_layer_ = 0;    // tokens that the layer has
  int last_piece_ = 0;
  std::span<const float> logits_;
};

}  // namespace fasa
