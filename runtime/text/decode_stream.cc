#include <algorithm>
#include <utility>

#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_parts.h"

namespace fasa::text {

struct DecodeStream::State {
  State(const TokenizerParts& tokenizer, bool skips, std::vector<int32_t> not_skipped)
      : parts(tokenizer),
        skip_special(skips),
        shown(std::move(not_skipped)),
        steps(tokenizer.decoder.start()) {}

  // Passes parts through the steps from `first` on; the last step's output is text.
  std::string run(std::vector<DecoderStep::Part> in, size_t first) {
    for (size_t step = first; step < steps.size(); ++step) {
      std::vector<DecoderStep::Part> out;
      for (auto& part : in) steps[step]->push(std::move(part), out);
      in = std::move(out);
    }
    std::string text;
    for (const auto& part : in) text += part.text;
    return text;
  }

  const TokenizerParts& parts;
  bool skip_special;
  std::vector<int32_t> shown;
  std::vector<std::unique_ptr<DecoderStep>> steps;
};

DecodeStream::DecodeStream(const Tokenizer& tokenizer, bool skip_special,
                           std::vector<int32_t> shown)
    : state_(std::make_unique<State>(*tokenizer.parts_, skip_special, std::move(shown))) {}
DecodeStream::DecodeStream(DecodeStream&&) noexcept = default;
DecodeStream& DecodeStream::operator=(DecodeStream&&) noexcept = default;
DecodeStream::~DecodeStream() = default;

std::string DecodeStream::push(int32_t id) {
  const auto spelling = state_->parts.spelling(id);
  if (!spelling) return "";
  const auto& shown = state_->shown;
  if (state_->skip_special && state_->parts.added.is_special(*spelling) &&
      std::find(shown.begin(), shown.end(), id) == shown.end()) {
    return "";
  }
  std::vector<DecoderStep::Part> parts;
  parts.push_back({std::string(*spelling), true});
  return state_->run(std::move(parts), 0);
}

std::string DecodeStream::finish() {
  std::string text;
  for (size_t step = 0; step < state_->steps.size(); ++step) {
    std::vector<DecoderStep::Part> out;
    state_->steps[step]->finish(out);
    text += state_->run(std::move(out), step + 1);
  }
  state_->steps = state_->parts.decoder.start();
  return text;
}

}  // namespace fasa::text
