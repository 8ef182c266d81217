// Collects what a model needs from its files, gives each part its place, then loads all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "offload/device.h"
#include "runtime/llm/weights.h"
#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/rounded_tensor.h"

namespace fasa {

// How a model's matrices are kept. Packed ones lie alike for host code and for kernels of a device,
// which find the order of inputs behind them; plain ones as `order` says.
struct WeightLayout {
  DType dtype = DType::kF32;  // of activations and plain weights
  PanelOrder order = PanelOrder::kPacked;
  PackedActivations activations = PackedActivations::kModel;
};

class WeightPlan {
 public:
  WeightPlan(const WeightSource& files, const WeightLayout& layout)
      : files_(files), layout_(layout) {}

  // Some rows of a tensor, as a rule all.
  struct Part {
    std::string tensor;
    int64_t rows;
    int64_t first = 0;
    int64_t of = 0;  // rows of the tensor; 0 = `rows`
    // Leading dimension of the tensor, of which each block has `of` rows; 0 = it has none.
    int64_t blocks = 0;
  };
  using Parts = std::vector<Part>;

  // A projection of the rows of all parts, one below the other. `target` must stay where it is.
  struct MatrixOptions {
    std::optional<Rounding> rounding = {};  // of parts that are not packed yet; null = as they are
    MemorySpace space = MemorySpace::kDevice;
  };
  void matrix(Matrix* target, const Parts& parts, int64_t inputs, const MatrixOptions& options);
  void matrix(Matrix* target, const Parts& parts, int64_t inputs) {
    matrix(target, parts, inputs, {});
  }
  // One of several that kernels multiply at once, which take plain ones alone: where these read it,
  // it is unpacked while it is loaded.
  void one_of_batch(Matrix* target, const Part& part, int64_t inputs);
  // `part` of a tensor of `columns` columns, its rows as inputs and its columns as outputs.
  void transposed(Matrix* target, const Part& part, int64_t columns,
                  MemorySpace space = MemorySpace::kDevice);
  // What becomes of a vector's values: (value + base) * scale.
  struct Adjust {
    float base = 0;
    float scale = 1;
  };
  // All parts side by side.
  void vector(const float** target, const Parts& parts, const Adjust& adjust = {0, 1});
  // A tensor that other code reads.
  WeightView used(const std::string& name, std::span<const int64_t> shape);
  bool has(const std::string& name) const { return files_.has(name); }
  // Matrices are read by kernels of a device.
  bool is_for_kernels() const { return layout_.order == PanelOrder::kPlain; }
  std::string source() const { return files_.source(); }
  // Throws InputError for a tensor that `prefix` names and that was never asked for: the config
  // describes another model.
  void require_all_used(const std::string& prefix, const std::string& config_path) const;

  // What load() allocates.
  uint64_t bytes(MemorySpace space) const { return bytes_[index(space)]; }
  // What kernels of a device need beside it, to rearrange and unpack (kernel_projection.h).
  uint64_t kernel_scratch() const { return kernel_scratch_; }
  struct Loaded {
    Buffer device, host;
  };
  // Allocates, packs and copies; sets all targets.
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
    Place order = {};  // of packed parts that have one for kernels
  };
  struct VectorItem {
    const float** target;
    std::vector<Piece> parts;
    Place place;
    int64_t size;
    Adjust adjust;
  };
  class Uploader;
  // `columns` 0: of a vector.
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
  std::vector<std::unique_ptr<PackedTensor>> rounded_;
  std::vector<MatrixItem> matrices_;
  std::vector<VectorItem> vectors_;
  size_t bytes_[2] = {};  // by space
  size_t kernel_scratch_ = 0;
};

}  // namespace fasa
