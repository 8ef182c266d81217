// A folder with quantised matrices as a source of weights: each matrix has one name, however many
// tensors it is stored in.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/quantization_config.h"
#include "runtime/llm/weights/safetensors.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

class QuantizedFiles final : public WeightSource {
 public:
  // Throws InputError for matrices that do not have the config's layout.
  QuantizedFiles(std::unique_ptr<WeightFiles> files, const QuantizationConfig& config);

  bool has(const std::string& name) const override;
  std::vector<std::string> names() const override;
  WeightView require(const std::string& name, std::span<const int64_t> shape) const override;
  const std::string& source() const override { return files_->source(); }
  // By the names that require() takes.
  const std::map<std::string, std::unique_ptr<PackedTensor>>& matrices() const { return matrices_; }

 private:
  void add(const std::string& stem, const QuantizationConfig& config, bool stacked);
  // Experts in one tensor, with scales beside it.
  bool is_stacked_fp8(const std::string& name) const;

  std::unique_ptr<WeightFiles> files_;
  std::map<std::string, std::unique_ptr<PackedTensor>> matrices_;
  std::set<std::string> parts_;  // tensors that belong to a matrix
};

}  // namespace fasa
