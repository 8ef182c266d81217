#include "tools/flags/sampling_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "runtime/base/error.h"
#include "tools/flags/add_option.h"

namespace fasa {
namespace {

// Parses "ID:BIAS"; the bias may be -inf.
std::pair<int32_t, float> parse_bias(const std::string& text) {
  const size_t colon = text.find(':');
  const char* const end = text.data() + text.size();
  int32_t id = 0;
  float bias = 0;
  if (colon != std::string::npos) {
    const char* const middle = text.data() + colon;
    const auto read_id = std::from_chars(text.data(), middle, id);
    const auto read_bias = std::from_chars(middle + 1, end, bias);
    if (read_id.ec == std::errc() && read_id.ptr == middle && read_bias.ec == std::errc() &&
        read_bias.ptr == end) {
      return {id, bias};
    }
  }
  throw UsageError(
      fmt::format("--logit-bias = \"{}\": allowed: ID:BIAS, such as 42:-5 or 42:-inf", text));
}

}  // namespace

void SamplingFlags::add_to(CLI::App& command) {
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return add_option(command, name, value, type, help);
  };
  add("--max-tokens", max_tokens_, "Maximum number of tokens to generate", "N")
      ->capture_default_str();
  add("--temperature", choice_.temperature,
      "Temperature; 0 = greedy [generation_config.json, else 0]", "T");
  add("--top-k", choice_.top_k,
      "Sample among the N most likely tokens; 0 = all [generation_config.json, else 0]", "N");
  add("--top-p", choice_.top_p,
      fmt::format("Sample among the most likely tokens with this total probability "
                  "[generation_config.json, else {:g}]",
                  usual_.top_p.value_or(1)),
      "P");
  add("--min-p", choice_.min_p,
      fmt::format("Sample among tokens with at least this share of the best token's probability "
                  "[generation_config.json, else {:g}]",
                  usual_.min_p.value_or(0)),
      "P");
  add("--repetition-penalty", choice_.repetition_penalty,
      "Divide the logits of tokens in prompt and answer by this [generation_config.json, else 1]",
      "R");
  add("--presence-penalty", choice_.presence_penalty,
      "Subtract this from the logits of tokens in the answer", "X");
  add("--frequency-penalty", choice_.frequency_penalty,
      "Subtract this for each occurrence in the answer", "X");
  add("--logit-bias", bias_, "Add BIAS to the logit of token ID; may be repeated", "ID:BIAS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add("--stop", stop_, "Stop before this text; may be repeated", "TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add("--seed", seed_, "Seed of the sampling", "N")->capture_default_str();
  add("--logprobs", logprobs_,
      "With --json: log-probabilities of the answer, and of the N most likely tokens", "N");
}

AnswerOptions SamplingFlags::options(const std::string& model_dir) const {
  AnswerOptions options;
  options.max_tokens = max_tokens_;
  options.sampling =
      choice_.over((model_dir.empty() ? GenerationDefaults{} : GenerationDefaults::load(model_dir))
                       .or_if_silent(usual_));
  options.sampling.seed = seed_;
  for (const std::string& bias : bias_) options.sampling.logit_bias.push_back(parse_bias(bias));
  options.stop = stop_;
  options.logprobs = logprobs_;
  options.validate();
  return options;
}

}  // namespace fasa
