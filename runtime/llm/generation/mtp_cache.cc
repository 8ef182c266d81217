#include "runtime/llm/generation/mtp_cache.h"

#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

Model& head_of(const Model& model) {
  if (Model* const head = model.mtp_head()) return *head;
  throw UsageError(
      "drafts of kind mtp: the model was loaded without its head of multi-token prediction; use "
      "drafts.kind = mtp when it is loaded, or none or lookup here");
}

Config full_attention() {
  Config config;
  config.preset = "full";
  config.apply_preset();
  return config;
}

}  // namespace

MtpCache::MtpCache(const Model& model, RowDType row_dtype)
    : head_(head_of(model)),
      runtime_(head_.device(), full_attention(), head_.config().geometry(), row_dtype,
               all_slice_dims(head_.config().geometry())) {}

Buffer MtpCache::allocate_states(int tokens) const {
  const auto bytes = static_cast<size_t>(int64_t{tokens} * hidden()) * sizeof(float);
  return head_.device().allocate(MemorySpace::kDevice, bytes, "hidden states for drafts");
}

std::optional<MtpCache> open_mtp_cache(const Model& model, const Runtime& runtime) {
  if (model.mtp_head() == nullptr) return std::nullopt;
  return std::optional<MtpCache>(std::in_place, model, runtime.traits().row_dtype);
}

float* MtpCache::states(int tokens) {
  const auto bytes = static_cast<size_t>(int64_t{tokens} * hidden()) * sizeof(float);
  if (states_.bytes() < bytes) {
    states_ = Buffer();
    states_ = allocate_states(tokens);
  }
  return states_.as<float>();
}

}  // namespace fasa
