// A memory-mapped GGUF file: weights under the names of a Hugging Face folder; config and tokenizer
// from its metadata.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/io/mapped_file.h"
#include "runtime/llm/gguf/gguf_header.h"
#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// Whether `path` names a GGUF file.
bool is_gguf(const std::string& path);

class GgufFile final : public WeightSource {
 public:
  // Throws InputError.
  explicit GgufFile(const std::string& path);

  const GgufHeader& header() const { return header_; }

  bool has(const std::string& name) const override { return names_.contains(name); }
  std::vector<std::string> names() const override;
  WeightView require(const std::string& name, std::span<const int64_t> shape) const override;
  const std::string& source() const override { return header_.name(); }

 private:
  // Converts a vector: subtracts `base`, and reorders rows of rotary pairs where head_dim > 0.
  void add_vector(const std::string& name, const GgufTensor& tensor, int64_t head_dim, float base);
  void add_matrix(const std::string& name, const GgufTensor& tensor, int64_t head_dim);
  // Adds the experts of one stacked tensor; `name` has a "*" for the expert's number.
  void add_experts(const std::string& name, const GgufTensor& tensor);
  void add_name(const std::string& name, const GgufTensor& tensor);

  MappedFile file_;
  GgufHeader header_;
  std::map<std::string, const GgufTensor*> names_;
  std::deque<GgufTensor> experts_;  // parts of the header's tensors
  std::map<std::string, std::unique_ptr<PackedTensor>> matrices_;
  std::map<std::string, std::vector<float>> vectors_;  // converted vectors
};

}  // namespace fasa
