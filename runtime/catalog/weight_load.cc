#include "runtime/catalog/weight_load.h"

namespace fasa {

WeightLoad weight_load(const ModelShape& model, int bits) {
  if (bits == 0) return {};
  return {.layer_bytes = weight_bytes(model.layer_parameters(), bits),
          .head_bytes = weight_bytes(model.head_parameters(), bits),
          .hidden_bytes = sizeof(float) * static_cast<uint64_t>(model.hidden),
          .logit_bytes = sizeof(float) * static_cast<uint64_t>(model.vocab),
          .layer_operations = 2 * static_cast<uint64_t>(model.layer_parameters()),
          .head_operations = 2 * static_cast<uint64_t>(model.head_parameters())};
}

}  // namespace fasa
