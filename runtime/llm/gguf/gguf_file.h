// A memory-mapped GGUF model: weights under the names of a Hugging Face folder.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/llm/gguf/gguf_architecture.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/gguf/gguf_header.h"
#include "runtime/llm/gguf/gguf_matrix.h"
#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

class GgufFile final : public WeightSource {
 public:
  // `path`: see gguf_paths(). Throws InputError.
  explicit GgufFile(const std::string& path);

  const GgufHeader& header() const { return files_.header(); }

  bool has(const std::string& name) const override { return names_.contains(name); }
  std::vector<std::string> names() const override;
  WeightView require(const std::string& name, std::span<const int64_t> shape) const override;
  const std::string& source() const override { return header().name(); }

 private:
  // Adds a tensor; norms without `base`, see ModelFamily::norm_base.
  void add(const std::string& name, const GgufTensor& tensor, const GgufRows& rows = {},
           float base = 0);
  void add_vector(const std::string& name, const GgufTensor& tensor, const GgufRows& rows,
                  float base);
  // Adds the parts of a tensor that holds one per expert or head; `name` has a "*" for the number.
  void add_stacked(const std::string& name, const GgufTensor& tensor);
  // Adds queries, keys and values that the file keeps in one tensor.
  void add_qkv(const std::string& name, const GgufTensor& tensor);
  const GgufTensor& slice(const GgufTensor& tensor, int64_t first, int64_t rows);
  GgufRows rows_of(std::string_view name) const;
  [[noreturn]] void fail(std::string_view tensor, std::string_view what) const;

  GgufFiles files_;
  const GgufArchitecture& architecture_;
  int64_t layers_ = 0;
  int64_t heads_ = 0;
  int64_t head_dim_ = 0;
  std::map<std::string, const GgufTensor*> names_;
  std::deque<GgufTensor> slices_;  // parts of the header's tensors
  std::map<std::string, std::unique_ptr<PackedTensor>> matrices_;
  std::map<std::string, std::vector<float>> vectors_;  // converted vectors
};

}  // namespace fasa
