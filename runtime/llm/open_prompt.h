// A prompt that a model reads layer by layer: in chunks whose residual stream is kept, each layer
// over the whole chunk, in pieces. Rows on the host come back once a layer and chunk, not once a
// step. The bits are those of steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/api/prefill_chunk.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/model.h"

namespace fasa {

class OpenPrompt {
 public:
  // Some kernels compute up to so many rows in another way, with other bits.
  static constexpr int kFewRows = 16;

  // `tokens` are appended to the sequence, whose memory is reserved, in pieces of up to `piece`
  // tokens plus kFewRows. `most`: of a chunk. Takes free memory for the residual; none: there is
  // not enough, the prompt is short, or model or runtime cannot (windows, linear attention, inputs
  // per layer, evicting selections): read it by steps. All arguments outlive it.
  static std::optional<OpenPrompt> open(Model& model, Runtime& runtime, SequenceId sequence,
                                        std::span<const int32_t> tokens, int piece,
                                        int most = kMaxChunkTokens);
  OpenPrompt(OpenPrompt&& other) noexcept;
  OpenPrompt& operator=(OpenPrompt&&) = delete;  // nothing needs it
  ~OpenPrompt();                                 // drops a chunk under way; whole chunks stay

  // Works on a piece. Returns true once the sequence has all tokens, with the last one's logits.
  // Throws what steps throw; then only the destructor may follow.
  bool work();
  std::span<const float> logits() const { return logits_; }
  int chunk() const { return chunk_; }  // tokens of a chunk, but the first and the last
  // Tokens done, a chunk under way by its layers.
  int64_t done() const;

 private:
  OpenPrompt(Model& model, Runtime& runtime, SequenceId sequence, std::span<const int32_t> tokens,
             int piece, int chunk);
  void open_chunk();
  int next_piece() const;

  Model* model_;
  Runtime* runtime_;
  SequenceId sequence_;
  std::span<const int32_t> tokens_;
  int piece_;
  int chunk_;
  int64_t start_;  // the sequence's length before the prompt
  Buffer residual_;
  int64_t closed_ = 0;  // tokens in whole chunks
  int open_ = 0;        // tokens of the chunk under way; 0: none
  int layer_ = 0;       // its layer, the model's
  int in_layer_ = 0;    // tokens that the layer has
  std::span<const float> logits_;
};

}  // namespace fasa
