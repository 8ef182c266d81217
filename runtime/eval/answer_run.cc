#include "runtime/eval/answer_run.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/llm/generation/sampler.h"

namespace fasa {

std::vector<int32_t> without_middle(std::vector<int32_t> ids, int64_t most) {
  const auto count = static_cast<int64_t>(ids.size());
  if (count <= most) return ids;
  const int64_t first = most / 2;
  ids.erase(ids.begin() + first, ids.begin() + (count - (most - first)));
  return ids;
}

std::string decode_answer(DecodeRun& run, std::span<const float> logits, const Sampling& sampling,
                          const text::TextCoder& tokenizer, int64_t max_tokens,
                          const std::function<bool(std::string_view)>& is_complete) {
  Sampler sampler(sampling);
  std::vector<int32_t> ids;
  std::string answer;
  for (int32_t next = sampler.next(logits); !run.model().config().is_eos(next);
       next = sampler.next(run.step(next))) {
    ids.push_back(next);
    if (is_complete) answer = tokenizer.decode(ids);
    if (std::ssize(ids) >= max_tokens || (is_complete && is_complete(answer))) break;
  }
  return tokenizer.decode(ids);
}

std::string write_answer(const EvalTarget& target, const text::TextCoder& tokenizer,
                         std::span<const int32_t> prompt, int64_t max_tokens,
                         const Sampling& sampling) {
  if (prompt.empty()) throw UsageError("the prompt is empty; give at least one token");
  DecodeRun run(target.model, target.runtime, std::ssize(prompt) + max_tokens, target.prompt);
  run.prefill(prompt.first(prompt.size() - 1));
  return decode_answer(run, run.read(prompt.last(1)), sampling, tokenizer, max_tokens, {});
}

std::vector<int32_t> encode_prompt(const text::TextCoder& tokenizer, std::string_view text) {
  const std::span<const int32_t> prefix = tokenizer.prefix();
  std::vector<int32_t> ids(prefix.begin(), prefix.end());
  const auto encoded = tokenizer.encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

std::vector<int32_t> encode_behind(const text::TextCoder& tokenizer, std::string_view text) {
  constexpr std::string_view kBefore = ".";
  const auto before = tokenizer.encode(kBefore);
  auto both = tokenizer.encode(std::string(kBefore) += text);
  const auto count = static_cast<int64_t>(before.size());
  if (both.size() <= before.size() || !std::equal(before.begin(), before.end(), both.begin())) {
    return tokenizer.encode(text);
  }
  return {both.begin() + count, both.end()};
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
