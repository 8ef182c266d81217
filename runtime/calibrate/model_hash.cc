#include "runtime/calibrate/model_hash.h"

#include <fmt/format.h>

#include "runtime/io/hash.h"

namespace fasa {

std::string model_hash(const ModelFingerprint& model) {
  uint64_t hash =
      fnv1a(fmt::format("{} {} {} {} {} {} {}", model.model_type, model.layers, model.kv_heads,
                        model.query_heads, model.key_dim, model.rope_theta, model.rope_scaling));
  for (const std::string& row : model.key_rows) hash = fnv1a(row, hash);
  return fmt::format("fnv1a:{:016x}", hash);
}

}  // namespace fasa
