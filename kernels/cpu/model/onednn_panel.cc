#include "kernels/cpu/model/onednn_panel.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/cpu/model/cpu_isa.h"

namespace fasa {
namespace {

// Limits OpenMP to one thread while Debian's oneDNN makes or runs a primitive.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;  // restores on its own thread, once
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

const dnnl::engine& engine() {
  static const dnnl::engine instance = [] {
    prepare_onednn();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return instance;
}

dnnl::stream& stream() {
  thread_local dnnl::stream instance(engine());
  return instance;
}

// Measured with oneDNN 2.6: its kernels named "brg" use one packed weight layout for any number of
// rows. While the same kernel is chosen, a row's bits are the same for 1, 2, 4, ... 128 rows. One
// row reads weights at 46 to 98 GB/s from the cache (Sapphire Rapids). So rows are split into
// powers of two: eight primitives serve all counts without padding. With working AMX, few rows get
// another kernel than many (one row avx512_core_bf16, from 2 or 16 on avx512_core_amx_bf16), whose
// sums differ. There, few rows are padded to the smallest number that gets the kernel of many,
// which reads the same weights.
//
// These kernels need contiguous rows; with gaps oneDNN takes a slower one. So the rows of a matrix
// of several panels are computed in a contiguous block and copied out.
//
// Other kernels (gemm:jit on AVX2) choose their order of sums by the shape: their blocks are padded
// to kFixedRows. In blocks of 2, 3, 4 and 6 rows a row's bits do not depend on its index; in blocks
// of 8 the last two rows differ.
constexpr int64_t kMaxRows = 128;
constexpr int64_t kFixedRows = 4;

class OneDnnPanel : public PanelKernel {
 public:
  using Description = dnnl::matmul::primitive_desc;

  // Throws dnnl::error if there is no implementation.
  explicit OneDnnPanel(const PanelShape& shape) : shape_(shape) {
    const auto any = dnnl::memory::desc({shape.inputs, shape.columns}, onednn_type(shape.dtype),
                                        dnnl::memory::format_tag::any);
    const Description most = describe(kMaxRows, any);
    const std::string kernel = most.impl_info_str();
    fixed_rows_ = !std::string_view(kernel).starts_with("brg:");
    if (fixed_rows_) {
      weights_ = describe(kFixedRows, any).weights_desc();
      blocks_.push_back(make(kFixedRows));
      return;
    }
    weights_ = most.weights_desc();
    for (int64_t rows = kMaxRows; rows > 0; rows /= 2) {
      if (describe(rows, weights_).impl_info_str() != kernel) break;
      blocks_.push_back(make(rows));
    }
  }

  size_t packed_bytes() const override { return weights_.get_size(); }
  const char* name() const override { return fixed_rows_ ? "oneDNN, fixed rows" : "oneDNN"; }

  void pack(const void* plain, void* packed) const override {
    reorder({1, shape_.inputs}, plain, packed);
  }
  void pack_by_input(const void* plain, int64_t stride, void* packed) const override {
    reorder({stride, 1}, plain, packed);
  }

  void run(int64_t rows, const void* x, const void* packed, float* y) const override {
    const OneOpenMpThread one;
    const int64_t row_bytes = shape_.inputs * dtype_bytes(shape_.dtype);
    const auto* source = static_cast<const std::byte*>(x);
    while (rows > 0) {
      const auto fits = [&](const Block& block) { return block.rows <= rows; };
      auto block = std::find_if(blocks_.begin(), blocks_.end(), fits);
      if (block == blocks_.end()) --block;
      const int64_t done = std::min(rows, block->rows);
      run_block(*block, done, source, packed, y);
      source += done * row_bytes;
      y += done * shape_.y_stride;
      rows -= done;
    }
  }

 private:
  // `strides`: of the plain weights, from input to input and from column to column.
  void reorder(const dnnl::memory::dims& strides, const void* plain, void* packed) const {
    const OneOpenMpThread one;
    const auto layout =
        dnnl::memory::desc({shape_.inputs, shape_.columns}, onednn_type(shape_.dtype), strides);
    dnnl::memory source(layout, engine(), const_cast<void*>(plain));
    dnnl::memory destination(weights_, engine(), packed);
    // Blocks beyond the matrix are read too.
    std::memset(packed, 0, packed_bytes());
    dnnl::reorder(source, destination).execute(stream(), source, destination);
    stream().wait();
  }

  using Arguments = std::unordered_map<int, dnnl::memory>;
  struct Block {
    int64_t rows;
    dnnl::matmul matmul;
    dnnl::memory::desc source;
    dnnl::memory::desc destination;
    dnnl::memory::desc scratch;
  };

  Description describe(int64_t rows, const dnnl::memory::desc& weights) const {
    const OneOpenMpThread one;
    const auto source = dnnl::memory::desc({rows, shape_.inputs}, onednn_type(shape_.dtype),
                                           dnnl::memory::format_tag::ab);
    const auto destination = dnnl::memory::desc(
        {rows, shape_.columns}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    // The library's own scratch would belong to the thread that made the primitive.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {dnnl::matmul::desc(source, weights, destination), attributes, engine()};
  }

  Block make(int64_t rows) const {
    const OneOpenMpThread one;
    const Description description = describe(rows, weights_);
    return {rows, dnnl::matmul(description), description.src_desc(), description.dst_desc(),
            description.scratchpad_desc()};
  }

  // A thread's arguments for a block's primitive, cached: creating four of them per call took a
  // sixth of a decode step of SmolLM2 in bf16, which has a thousand calls.
  Arguments& arguments_of(const Block& block) const {
    thread_local std::unordered_map<const Block*, Arguments> kept;
    const auto [found, is_new] = kept.try_emplace(&block);
    if (is_new) {
      const auto of = [](const dnnl::memory::desc& layout) {
        return dnnl::memory(layout, engine(), nullptr);
      };
      found->second = {{DNNL_ARG_SRC, of(block.source)},
                       {DNNL_ARG_WEIGHTS, of(weights_)},
                       {DNNL_ARG_DST, of(block.destination)},
                       {DNNL_ARG_SCRATCHPAD, of(block.scratch)}};
    }
    return found->second;
  }

  void execute(const Block& block, const void* x, const void* packed, float* y) const {
    thread_local std::vector<std::byte> scratch;
    scratch.resize(std::max(scratch.size(), block.scratch.get_size()));
    Arguments& arguments = arguments_of(block);
    const auto point = [&](int argument, const void* data) {
      dnnl::memory& memory = arguments.at(argument);
      if (memory.get_data_handle() != data) memory.set_data_handle(const_cast<void*>(data));
    };
    point(DNNL_ARG_SRC, x);
    point(DNNL_ARG_WEIGHTS, packed);
    point(DNNL_ARG_DST, y);
    point(DNNL_ARG_SCRATCHPAD, scratch.data());
    block.matmul.execute(stream(), arguments);
  }

  // Runs the first `rows` rows of a block; the others are zeros.
  void run_block(const Block& block, int64_t rows, const std::byte* x, const void* packed,
                 float* y) const {
    thread_local std::vector<std::byte> padded;
    thread_local std::vector<float> result;
    if (rows < block.rows) {
      const auto row_bytes = static_cast<size_t>(shape_.inputs * dtype_bytes(shape_.dtype));
      padded.assign(row_bytes * static_cast<size_t>(block.rows), std::byte{0});
      std::memcpy(padded.data(), x, row_bytes * static_cast<size_t>(rows));
      x = padded.data();
    } else if (rows == 1 || shape_.y_stride == shape_.columns) {
      execute(block, x, packed, y);
      return;
    }
    const auto floats = static_cast<size_t>(block.rows * shape_.columns);
    result.resize(std::max(result.size(), floats));
    execute(block, x, packed, result.data());
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(result.data() + row * shape_.columns, shape_.columns, y + row * shape_.y_stride);
    }
  }

  PanelShape shape_;
  bool fixed_rows_ = false;
  dnnl::memory::desc weights_;
  std::vector<Block> blocks_;  // most rows first
};

}  // namespace

std::unique_ptr<PanelKernel> make_onednn_panel(const PanelShape& shape) {
  try {
    return std::make_unique<OneDnnPanel>(shape);
  } catch (const dnnl::error&) {
    return nullptr;  // bf16 below AVX-512
  }
}

}  // namespace fasa
