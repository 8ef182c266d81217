#include "runtime/llm/penalties.h"

namespace fasa {

void Penalties::see_prompt(std::span<const int32_t> ids) {
  if (sampling_.repetition_penalty == 1) return;
  for (const int32_t id : ids) generated_.emplace(id, 0);
}

void Penalties::see_generated(int32_t id) { ++generated_[id]; }

bool Penalties::any() const {
  return !sampling_.logit_bias.empty() || sampling_.repetition_penalty != 1 ||
         sampling_.presence_penalty != 0 || sampling_.frequency_penalty != 0;
}

void Penalties::apply(std::span<float> logits) const {
  const auto known = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  for (const auto& [id, bias] : sampling_.logit_bias) {
    if (known(id)) logits[static_cast<size_t>(id)] += bias;
  }
  for (const auto& [id, count] : generated_) {
    if (!known(id)) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / sampling_.repetition_penalty : logit * sampling_.repetition_penalty;
    if (count == 0) continue;
    logit -= sampling_.presence_penalty + sampling_.frequency_penalty * static_cast<float>(count);
  }
}

}  // namespace fasa
