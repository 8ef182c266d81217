// generation_config.json, and the sampling options that it gives a request without options.
#include <cmath>
#include <cstdlib>

#include "runtime/llm/generation/generation_defaults.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(generation_defaults) {
  const auto defaults = fasa::GenerationDefaults::parse(text_of(data, size), "fuzz.json");
  const fasa::Sampling sampling = fasa::SamplingChoice{}.over(defaults);
  for (const float value :
       {sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty}) {
    if (!std::isfinite(value) || value < 0) std::abort();
  }
  if (sampling.top_k < 0) std::abort();
}
