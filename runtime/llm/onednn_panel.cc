#include "runtime/llm/onednn_panel.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <dnnl.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/llm/cpu_isa.h"

namespace fasa {
namespace {

// Debian's oneDNN asks OpenMP for threads, when a primitive is made and when it runs.
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

// Measured with oneDNN 2.6 on Sapphire Rapids without AMX: the avx512 kernels ("brg") take weights
// in one packed layout whatever the number of rows, and a row's bits are the same for 1, 2, 4, 16,
// 17, 64 and 512 rows; one row reads weights at 46 to 98 GB/s from the cache. So rows are split
// into powers of two: eight primitives serve all counts and nothing is padded. Other kernels
// (gemm:jit on AVX2) choose their sums by the shape: they get blocks of kFixedRows, padded. Blocks
// of 2, 3, 4 and 6 rows keep a row's bits whatever its place in the block; of 8 rows the last two
// come out differently.
constexpr int64_t kMaxRows = 128;
constexpr size_t kRowKinds = 8;  // 1, 2, 4, ... kMaxRows
constexpr int64_t kFixedRows = 4;
static_assert(kMaxRows == int64_t{1} << (kRowKinds - 1));

class OneDnnPanel : public PanelKernel {
 public:
  using Description = dnnl::matmul::primitive_desc;

  // Throws dnnl::error where there is no implementation.
  explicit OneDnnPanel(const PanelShape& shape) : shape_(shape) {
    const auto any = dnnl::memory::desc({shape.inputs, shape.columns}, onednn_type(shape.dtype),
                                        dnnl::memory::format_tag::any);
    const Description single = describe(1, any, shape.y_stride);
    any_row_count_ = std::string_view(single.impl_info_str()).starts_with("brg:");
    if (any_row_count_) {
      weights_ = single.weights_desc();
      for (size_t i = 0; i < kRowKinds; ++i) {
        primitives_[i] = make(int64_t{1} << i, shape.y_stride);
        any_row_count_ = any_row_count_ && primitives_[i]->brgemm;
      }
    }
    if (!any_row_count_) {
      weights_ = describe(kFixedRows, any, shape.columns).weights_desc();
      primitives_[0] = make(kFixedRows, shape.columns);
    }
  }

  size_t packed_bytes() const override { return weights_.get_size(); }
  const char* name() const override { return any_row_count_ ? "oneDNN" : "oneDNN, fixed rows"; }

  void pack(const void* plain, void* packed) const override {
    const OneOpenMpThread one;
    const auto layout = dnnl::memory::desc({shape_.inputs, shape_.columns},
                                           onednn_type(shape_.dtype), dnnl::memory::format_tag::ba);
    dnnl::memory source(layout, engine(), const_cast<void*>(plain));
    dnnl::memory destination(weights_, engine(), packed);
    // Blocks that reach beyond the matrix are read too.
    std::memset(packed, 0, packed_bytes());
    dnnl::reorder(source, destination).execute(stream(), source, destination);
    stream().wait();
  }

  void run(int64_t rows, const void* x, const void* packed, float* y) const override {
    const OneOpenMpThread one;
    const int64_t row_bytes = shape_.inputs * dtype_bytes(shape_.dtype);
    const auto* source = static_cast<const std::byte*>(x);
    while (rows > 0) {
      int64_t done = 0;
      if (any_row_count_) {
        size_t kind = kRowKinds - 1;
        while ((int64_t{1} << kind) > rows) --kind;
        done = int64_t{1} << kind;
        execute(*primitives_[kind], source, packed, y);
      } else {
        done = std::min(rows, kFixedRows);
        run_padded(done, source, packed, y);
      }
      source += done * row_bytes;
      y += done * shape_.y_stride;
      rows -= done;
    }
  }

 private:
  struct Primitive {
    dnnl::matmul matmul;
    dnnl::memory::desc source;
    dnnl::memory::desc destination;
    dnnl::memory::desc scratch;
    bool brgemm;
  };

  Description describe(int64_t rows, const dnnl::memory::desc& weights, int64_t y_stride) const {
    const OneOpenMpThread one;
    const auto source = dnnl::memory::desc({rows, shape_.inputs}, onednn_type(shape_.dtype),
                                           dnnl::memory::format_tag::ab);
    const auto destination = dnnl::memory::desc(
        {rows, shape_.columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{y_stride, 1});
    dnnl::primitive_attr attributes;
    // The library's own scratch belongs to the thread that made the primitive.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {dnnl::matmul::desc(source, weights, destination), attributes, engine()};
  }

  std::optional<Primitive> make(int64_t rows, int64_t y_stride) const {
    const OneOpenMpThread one;
    const Description description = describe(rows, weights_, y_stride);
    return Primitive{dnnl::matmul(description), description.src_desc(), description.dst_desc(),
                     description.scratchpad_desc(),
                     std::string_view(description.impl_info_str()).starts_with("brg:")};
  }

  void execute(const Primitive& primitive, const void* x, const void* packed, float* y) const {
    thread_local std::vector<std::byte> scratch;
    scratch.resize(std::max(scratch.size(), primitive.scratch.get_size()));
    primitive.matmul.execute(
        stream(),
        {{DNNL_ARG_SRC, dnnl::memory(primitive.source, engine(), const_cast<void*>(x))},
         {DNNL_ARG_WEIGHTS, dnnl::memory(weights_, engine(), const_cast<void*>(packed))},
         {DNNL_ARG_DST, dnnl::memory(primitive.destination, engine(), y)},
         {DNNL_ARG_SCRATCHPAD, dnnl::memory(primitive.scratch, engine(), scratch.data())}});
  }

  void run_padded(int64_t rows, const std::byte* x, const void* packed, float* y) const {
    thread_local std::vector<std::byte> padded;
    thread_local std::vector<float> result;
    const auto row_bytes = static_cast<size_t>(shape_.inputs * dtype_bytes(shape_.dtype));
    padded.assign(row_bytes * kFixedRows, std::byte{0});
    result.resize(static_cast<size_t>(kFixedRows * shape_.columns));
    std::memcpy(padded.data(), x, row_bytes * static_cast<size_t>(rows));
    execute(*primitives_[0], padded.data(), packed, result.data());
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(result.data() + row * shape_.columns, shape_.columns, y + row * shape_.y_stride);
    }
  }

  PanelShape shape_;
  bool any_row_count_ = false;
  dnnl::memory::desc weights_;
  std::array<std::optional<Primitive>, kRowKinds> primitives_;
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
