// The prompt that is read layer by layer, in pieces between the steps of others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/open_prompt.h"
#include "runtime/serve/active_choice.h"
#include "runtime/serve/engine_options.h"
#include "runtime/serve/piece_costs.h"

namespace fasa::serve {

// One prompt at a time. Its chunk has memory that was free when it began; the chunk is given up
// where others need that memory, and the next one is half as long. Whole chunks stay.
class PromptReader {
 public:
  // All arguments outlive it.
  PromptReader(Model& model, Runtime& runtime, const EngineOptions& options);

  // Whether the model's prompts can be read so at all.
  bool possible() const { return possible_; }
  // Begins with the choice's prompt, and leaves another one, which has no chunk under way. False:
  // there is no memory.
  bool open(ActiveChoice& choice);
  ActiveChoice* choice() const { return choice_; }
  bool reads(const ActiveChoice& choice) const { return choice_ == &choice; }
  // A chunk is under way: its prompt can only go on or lose it.
  bool in_chunk() const { return open_ && open_->in_chunk(); }
  double chunk_left() const;  // its tokens, by layers
  // Tokens of the prompt behind those that its sequence has.
  double done() const;

  struct Worked {
    double tokens = 0;                   // by layers
    int closed = 0;                      // tokens that the sequence has got
    bool whole = false;                  // it has all that were to be prefilled
    std::span<const float> logits = {};  // then; until the model's next step
  };
  // Works on pieces for about that time, not beyond the chunk's end; see PieceCosts. Without memory
  // the chunk is lost, and the prompt goes on by steps. Throws what steps throw; the chunk is lost.
  Worked work(double seconds, double useful);

  // Before the choice's sequence is freed, cached or read by steps: its chunk is lost.
  void leave(const ActiveChoice& choice);
  // Gives up the chunk's memory. False: there is none.
  bool give_up();

 private:
  int in_place_chunk(int64_t keys) const;
  PieceCosts::Piece next_piece() const;
  void work_on_pieces(double seconds, double useful, Worked* worked);
  void close();

  Model& model_;
  Runtime& runtime_;
  const int piece_;  // tokens
  const double idle_seconds_;
  const bool possible_;
  PieceCosts costs_;
  ActiveChoice* choice_ = nullptr;
  std::optional<OpenPrompt> open_;  // with `choice_`
};

}  // namespace fasa::serve
