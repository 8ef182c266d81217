#include "runtime/api/kv_cost.h"

#include "kernels/layout.h"
#include "runtime/api/settings.h"

namespace fasa {
namespace {

struct NamedSlice {
  const char* name;
  SlicePreset preset;
};

KvCost cost_of(const std::string& preset, const NamedSlice& slice, const Geometry& geometry,
               RowDType row_dtype) {
  Config config;
  config.preset = preset;
  config.apply_preset();
  config.selection.slice = slice.preset;
  const StepSettings settings = make_step_settings(config, geometry, row_dtype, kEmulatedTraits, 0);
  const double slices = static_cast<double>(settings.layout.slice_block_bytes()) / kPageTokens;
  const double rows = static_cast<double>(settings.layout.row_block_bytes()) / kPageTokens;
  const bool on_host = traits_of(settings.rows).space == MemorySpace::kHost;
  return {.preset = preset,
          .slice = slice.name,
          .tip_chunks = config.effective_tip_chunks(geometry.chunks()),
          .slice_dtype = config.effective_slice_dtype(),
          .device_bytes = slices + (on_host ? 0 : rows),
          .host_bytes = on_host ? rows : 0};
}

}  // namespace

std::vector<KvCost> kv_costs(const Geometry& geometry, RowDType row_dtype) {
  constexpr NamedSlice kSlices[] = {{"default", SlicePreset::kDefault},
                                    {"fine", SlicePreset::kFine},
                                    {"lean", SlicePreset::kLean},
                                    {"paper", SlicePreset::kPaper}};
  std::vector<KvCost> costs;
  for (const char* preset : {"fasa-m", "fasa-c"}) {
    for (const NamedSlice& slice : kSlices) {
      costs.push_back(cost_of(preset, slice, geometry, row_dtype));
    }
  }
  costs.push_back(cost_of("full", kSlices[0], geometry, row_dtype));
  return costs;
}

uint64_t full_kv_bytes_per_token(const Geometry& geometry) {
  int64_t elements = 0;
  for (int layer = 0; layer < geometry.storing_layers(); ++layer) {
    const HeadShape heads = geometry.heads(layer);
    elements += int64_t{heads.kv_heads} * (heads.key_dim + heads.value_dim);
  }
  return static_cast<uint64_t>(2 * elements);
}

}  // namespace fasa
