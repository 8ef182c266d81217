// Flags for sampling and for the end of answers.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/llm/generation/answer.h"
#include "runtime/llm/generation/generation_defaults.h"

namespace fasa {

class SamplingFlags {
 public:
  // `usual`: where the model states nothing.
  explicit SamplingFlags(int64_t max_tokens, GenerationDefaults usual = {})
      : max_tokens_(max_tokens), usual_(std::move(usual)) {}
  SamplingFlags(const SamplingFlags&) = delete;  // the parser holds addresses of its members

  void add_to(CLI::App& command);
  // The flags' values merged over generation_config.json of the model's folder ("": none). Throws
  // UsageError, InputError.
  AnswerOptions options(const std::string& model_dir) const;

 private:
  int64_t max_tokens_;
  GenerationDefaults usual_;
  SamplingChoice choice_;
  uint64_t seed_ = 0;
  std::vector<std::string> stop_;
  std::vector<std::string> bias_;
  std::optional<int> logprobs_;
};

}  // namespace fasa
