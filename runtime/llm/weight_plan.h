// Collects what a model needs from its files, gives each part its place, then loads all of it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "offload/device.h"
#include "runtime/llm/weights.h"

namespace fasa {

class WeightPlan {
 public:
  WeightPlan(const WeightSource& files, DType dtype, PanelOrder order)
      : files_(files), dtype_(dtype), order_(order) {}

  // Some rows of a tensor, as a rule all.
  struct Part {
    std::string tensor;
    int64_t rows;
    int64_t first = 0;
    int64_t of = 0;  // rows of the tensor; 0 = `rows`
  };
  using Parts = std::vector<Part>;

  // A projection of the rows of all parts, one below the other. `target` must stay where it is.
  void matrix(Matrix* target, const Parts& parts, int64_t inputs);
  // `part` of a tensor of `columns` columns, its rows as inputs and its columns as outputs.
  void transposed(Matrix* target, const Part& part, int64_t columns);
  // All parts side by side.
  void vector(const float** target, const Parts& parts);
  // A tensor that somebody else reads.
  WeightView used(const std::string& name, std::span<const int64_t> shape);
  bool has(const std::string& name) const { return files_.has(name); }
  // Throws InputError for a tensor that `prefix` names and nobody asked for: the config describes
  // another model.
  void require_all_used(const std::string& prefix, const std::string& config_path) const;

  // Allocates, packs and copies; sets all targets.
  Buffer load(Device& device, StreamView stream) const;

 private:
  struct Piece {
    WeightView tensor;
    int64_t first, rows;
  };
  struct MatrixItem {
    Matrix* target;
    std::vector<Piece> parts;
    size_t offset;
    bool transposed = false;
  };
  struct VectorItem {
    const float** target;
    std::vector<Piece> parts;
    size_t offset;
    int64_t size;
  };
  class Uploader;
  void load_matrix(const MatrixItem& item, Uploader* uploader) const;
  void read_rows(const MatrixItem& item, int64_t first, int64_t rows, std::byte* out) const;
  void read_columns(const MatrixItem& item, int64_t first, int64_t columns, std::byte* out) const;
  size_t take(size_t bytes);

  const WeightSource& files_;
  DType dtype_;
  PanelOrder order_;
  std::set<std::string> used_;
  std::vector<MatrixItem> matrices_;
  std::vector<VectorItem> vectors_;
  size_t bytes_ = 0;
};

}  // namespace fasa
