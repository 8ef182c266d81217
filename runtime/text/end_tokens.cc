#include "runtime/text/end_tokens.h"

namespace fasa::text {
namespace {

constexpr std::string_view kSpellings[] = {
    // turns and texts
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
    // filling in the middle: padding, repository, file
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
    "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"};

}  // namespace

std::span<const std::string_view> end_spellings() { return kSpellings; }

bool ends_answer(std::string_view spelling, const std::function<bool(std::string_view)>& has) {
  if (spelling == "<|end|>") {  // with these tokens it ends a message within an answer
    const bool calls = has("<|call|>") || has("<|calls|>");
    return !(calls && (has("<|return|>") || has("<|flush|>")));
  }
  // The end of struck-out text beside these.
  if (spelling == "</s>") return !has("<|tool_response>") && !has("<|plamo:eos|>");
  return true;
}

}  // namespace fasa::text
