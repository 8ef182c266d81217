// A GGUF file, mapped: weights by the names of a Hugging Face folder, config and tokenizer from its
// metadata.
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

// Whether a model's path names such a file.
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
  // What the model has where the file has `base` more, or rows of heads in another order
  // (head_dim above 0).
  void add_vector(const std::string& name, const GgufTensor& tensor, int64_t head_dim, float base);
  void add_matrix(const std::string& name, const GgufTensor& tensor, int64_t head_dim);
  // Experts that lie in one tensor; `name` has a "*" in place of an expert's number.
  void add_experts(const std::string& name, const GgufTensor& tensor);
  void add_name(const std::string& name, const GgufTensor& tensor);

  MappedFile file_;
  GgufHeader header_;
  std::map<std::string, const GgufTensor*> names_;
  std::deque<GgufTensor> experts_;  // parts of the header's tensors
  std::map<std::string, std::unique_ptr<PackedTensor>> matrices_;
  std::map<std::string, std::vector<float>> vectors_;  // those that are not as in the file
};

}  // namespace fasa
