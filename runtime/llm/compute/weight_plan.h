// Collects the tensors that a model needs, assigns each a location, then loads all of them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "offload/device.h"
#include "runtime/llm/compute/weights.h"
#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/rounded_tensor.h"

namespace fasa {

// How a model's matrices are stored. Packed matrices have one layout for host code and kernels; for
// kernels, the order of inputs follows the codes. Plain matrices are laid out as `order` says.
struct WeightLayout {
  DType dtype = DType::kF32;  // of activations and plain weights
  PanelOrder order = PanelOrder::kPacked;
  PackedActivations activations = PackedActivations::kModel;
};

class WeightPlan {
 public:
  WeightPlan(const WeightSource& files, const WeightLayout& layout)
      : files_(files), layout_(layout) {}

  // Some rows of a tensor, usually all.
  struct Part {
    std::string tensor;
    int64_t rows;
    int64_t first = 0;
    int64_t of = 0;  // rows of the tensor; 0 = `rows`
    // Leading dimension of the tensor, each block with `of` rows; 0 = it has none.
    int64_t blocks = 0;
  };
  using Parts = std::vector<Part>;

  // A projection with the rows of all parts stacked. `target` must not move.
  struct MatrixOptions {
    std::optional<Rounding> rounding = {};  // applies to unpacked parts; null = keep them
    MemorySpace space = MemorySpace::kDevice;
  };
  void matrix(Matrix* target, const Parts& parts, int64_t inputs, const MatrixOptions& options);
  void matrix(Matrix* target, const Parts& parts, int64_t inputs) {
    matrix(target, parts, inputs, {});
  }
  // One of several matrices that kernels multiply together. Those kernels read plain weights only,
  // so for them it is unpacked at load.
  void one_of_batch(Matrix* target, const Part& part, int64_t inputs);
  // Transposed: the rows of `part` are inputs, its `columns` columns are outputs.
  void transposed(Matrix* target, const Part& part, int64_t columns,
                  MemorySpace space = MemorySpace::kDevice);
  // Change to a vector's values at load: (value + base) * scale, or exp(value + base) * scale.
  struct Adjust {
    float base = 0;
    float scale = 1;
    bool exponential = false;
  };
  // Concatenates all parts.
  void vector(const float** target, const Parts& parts, const Adjust& adjust = {0, 1, false});
  // All elements of a tensor of any shape.
  void vector(const float** target, const std::string& tensor, std::span<const int64_t> shape);
  // Marks a tensor as used that other code reads.
  WeightView used(const std::string& name, std::span<const int64_t> shape);
  bool has(const std::string& name) const { return files_.has(name); }
  const WeightSource& files() const { return files_; }
  // Whether device kernels read the matrices.
  bool is_for_kernels() const { return layout_.order == PanelOrder::kPlain; }
  std::string source() const { return files_.source(); }
  // Throws InputError if a tensor with `prefix` in its name was never requested: the config is of
  // another model. Names that begin with one of `ignored` may be left.
  void require_all_used(const std::string& prefix, const std::vector<std::string>& ignored) const;

  // Bytes that load() allocates.
  uint64_t bytes(MemorySpace space) const { return bytes_[index(space)]; }
  // Bytes that device kernels need in addition, to reorder and unpack (kernel_projection.h).
  uint64_t kernel_scratch() const { return kernel_scratch_; }
  struct Loaded {
    Buffer device, host;
  };
  // Allocates, packs and copies the weights; sets all targets.
  Loaded load(Device& device, StreamView stream) const;

 private:
  struct Piece {
    WeightView tensor;
    int64_t first, rows;
    bool unpacked = false;
  };
  struct Place {
    MemorySpace space = MemorySpace::kDevice;
    size_t offset = 0;
  };
  static size_t index(MemorySpace space) { return space == MemorySpace::kDevice ? 0 : 1; }
  // One part of a matrix: pieces of one kind.
  struct MatrixItem {
    Matrix* target;
    size_t part;
    std::vector<Piece> pieces;
    Place place;
    bool transposed = false;
    Place order = {};  // of packed parts with an order for kernels
  };
  struct VectorItem {
    const float** target;
    std::vector<Piece> parts;
    Place place;
    int64_t size;
    Adjust adjust;
  };
  class Uploader;
  // `columns` 0: a vector.
  WeightView used(const Part& part, int64_t columns);
  const PackedTensor* packed_of(const Piece& piece) const;
  bool joins(const Piece& before, const Piece& after) const;
  void add_pieces(Matrix* target, std::vector<Piece> pieces, int64_t inputs,
                  MemorySpace space = MemorySpace::kDevice);
  bool has_kernel_order(const PackedLinear& linear) const;
  const int32_t* load_order(const MatrixItem& item, const PackedLinear& linear,
                            Uploader* uploader) const;
  void add_part(Matrix* target, std::vector<Piece> pieces, int64_t first, MemorySpace space);
  void load_plain(const MatrixItem& item, const Linear& linear, Uploader* uploader) const;
  void load_packed(const MatrixItem& item, const PackedLinear& linear, Uploader* uploader) const;
  void read_rows(const MatrixItem& item, int64_t first, int64_t rows, std::byte* out) const;
  void read_columns(const MatrixItem& item, int64_t first, int64_t columns, std::byte* out) const;
  Place take(size_t bytes, MemorySpace space = MemorySpace::kDevice);

  const WeightSource& files_;
  WeightLayout layout_;
  std::set<std::string> used_;
  // Shapes that files write otherwise: of stacked blocks as matrices, and without leading lengths
  // of 1. Views point here.
  std::deque<std::vector<int64_t>> shapes_;
  std::vector<std::unique_ptr<PackedTensor>> rounded_;
  std::vector<MatrixItem> matrices_;
  std::vector<VectorItem> vectors_;
  size_t bytes_[2] = {};  // by MemorySpace
  size_t kernel_scratch_ = 0;
};

}  // namespace fasa
