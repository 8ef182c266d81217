#include "runtime/llm/generation/penalties.h"

#include <algorithm>

namespace fasa {

void Penalties::see_prompt(std::span<const int32_t> ids) {
  if (sampling_.repetition_penalty == 1) return;
  const auto window = static_cast<size_t>(sampling_.repetition_window);
  if (window > 0) {
    for (const int32_t id : ids.last(std::min(window, ids.size()))) remember(id);
  } else {
    for (const int32_t id : ids) generated_.emplace(id, 0);
  }
}

void Penalties::see_generated(int32_t id) {
  ++generated_[id];
  if (sampling_.repetition_window > 0) remember(id);
}

void Penalties::remember(int32_t id) {
  last_.push_back(id);
  ++in_window_[id];
  if (last_.size() <= static_cast<size_t>(sampling_.repetition_window)) return;
  if (--in_window_[last_.front()] == 0) in_window_.erase(last_.front());
  last_.pop_front();
}

bool Penalties::any() const {
  return !sampling_.logit_bias.empty() || sampling_.repetition_penalty != 1 ||
         sampling_.presence_penalty != 0 || sampling_.frequency_penalty != 0;
}

void Penalties::apply(std::span<float> logits) const {
  const auto known = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  for (const auto& [id, bias] : sampling_.logit_bias) {
    if (known(id)) logits[static_cast<size_t>(id)] += bias;
  }
  for (const auto& [id, unused] : sampling_.repetition_window > 0 ? in_window_ : generated_) {
    if (!known(id)) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / sampling_.repetition_penalty : logit * sampling_.repetition_penalty;
  }
  for (const auto& [id, count] : generated_) {
    if (!known(id) || count == 0) continue;
    logits[static_cast<size_t>(id)] -=
        sampling_.presence_penalty + sampling_.frequency_penalty * static_cast<float>(count);
  }
}

}  // namespace fasa
