#include "runtime/lab/eval/answer_run.h"

#include "runtime/lab/eval/decode_run.h"

namespace fasa {

std::vector<int32_t> without_middle(std::vector<int32_t> ids, int64_t most) {
  const auto count = static_cast<int64_t>(ids.size());
  if (count <= most) return ids;
  const int64_t first = most / 2;
  ids.erase(ids.begin() + first, ids.begin() + (count - (most - first)));
  return ids;
}

std::string write_answer(const EvalTarget& target, const Tokenizer& tokenizer,
                         const std::vector<int32_t>& prompt, int64_t max_tokens,
                         const Sampling& sampling) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.prefill_chunk = kEvalPrefillChunk;
  options.sampling = sampling;
  const GenerateResult result = generate(target.model, target.runtime, prompt, options, &tokenizer);
  if (result.error) throw Error(result.error_kind.value_or(ErrorKind::kDevice), *result.error);
  return tokenizer.decode(result.tokens);
}

std::string filled_template(std::string_view text, const nlohmann::json& members) {
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    const bool doubled = at + 1 < text.size() && text[at] == text[at + 1];
    if ((text[at] == '{' || text[at] == '}') && doubled) {
      filled += text[at];
      at += 2;
      continue;
    }
    const size_t end = text[at] == '{' ? text.find('}', at) : std::string_view::npos;
    const std::string name(text.substr(at + 1, end == std::string_view::npos ? 0 : end - at - 1));
    if (end == std::string_view::npos || !members.contains(name) || !members[name].is_string()) {
      filled += text[at++];
      continue;
    }
    filled += members[name].get<std::string>();
    at = end + 1;
  }
  return filled;
}

}  // namespace fasa
