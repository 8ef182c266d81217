#include "runtime/llm/compute/open_model.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/llm/compute/open_model_device.h"

namespace fasa {

std::unique_ptr<Runtime> OpenModel::make_runtime(int64_t max_context) const {
  const RowDType rows = config.placement.row_dtype.value_or(model.config().row_dtype());
  return std::make_unique<Runtime>(*device, config, model.config().geometry(), rows, slices.dims,
                                   max_context);
}

OpenModel open_model(const std::string& path, const Config& config, std::optional<DType> dtype) {
  config.validate();
  Config own = with_map(config, path);
  const ModelConfig shape = ModelConfig::load(path);
  own.validate_for(shape.geometry());
  auto device = open_model_device(own.device_options(), shape);
  Model model = Model::load(path, *device, dtype, own.weight_options());
  auto slices = model_slices(model, own, path);
  if (!slices) {
    throw InputError(
        fmt::format("{} does not exist, but slices over {} of {} frequency chunks, {} in int4, "
                    "need it; make it "
                    "with `fasa calibrate`, or set selection.slice = default",
                    usual_map(path), own.effective_tip_chunks(shape.geometry().chunks()),
                    shape.geometry().chunks(), own.effective_fine_chunks()));
  }
  return {std::move(own), std::move(device), std::move(model), *std::move(slices)};
}

}  // namespace fasa
