#include "runtime/llm/gguf/gguf_matrix.h"

#include "runtime/base/dtype.h"
#include "runtime/llm/gguf/gguf_blocks.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {
namespace {

class GgufMatrix final : public PackedTensor {
 public:
  GgufMatrix(const GgufTensor& tensor, const GgufRows& rows)
      : PackedTensor(tensor.shape[0], tensor.shape[1]),
        block_(*tensor.block),
        layout_(block_layout(block_.type)),
        data_(tensor.data),
        rows_(rows) {
    if (layout_.read == nullptr) {
      set_unpackable();
    } else {
      set_format(layout_.format);
    }
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    const int64_t blocks = inputs() / block_.elements;
    const int64_t groups = block_.elements / format().group;
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* at = row(first + i);
      for (int64_t block = 0; block < blocks; ++block, at += block_.bytes) {
        layout_.read(
            at, {.codes = out->codes(i) + block * block_.elements,
                 .scales = out->scales(i) + block * groups,
                 .offsets = out->offsets(i) + block * groups,
                 .super_scale = out->super_scales(i) + block * block_.elements / kPackedSuper,
                 .super_offset = out->super_offsets(i) + block * block_.elements / kPackedSuper});
      }
    }
  }

  void dequantise(int64_t first, int64_t count, float* out) const override {
    if (packs()) return PackedTensor::dequantise(first, count, out);
    WeightView view;
    view.dtype = block_.type == GgmlType::kF32
                     ? DType::kF32
                     : (block_.type == GgmlType::kF16 ? DType::kF16 : DType::kBF16);
    for (int64_t i = 0; i < count; ++i) {
      view.data = row(first + i);
      view.read(0, inputs(), out + i * inputs());
    }
  }

 private:
  const std::byte* row(int64_t index) const {
    return data_ + rows_.in_file(index) * (inputs() / block_.elements * block_.bytes);
  }

  GgmlBlock block_;
  BlockLayout layout_;
  const std::byte* data_;
  GgufRows rows_;
};

}  // namespace

std::unique_ptr<PackedTensor> make_gguf_matrix(const GgufTensor& tensor, const GgufRows& rows) {
  return std::make_unique<GgufMatrix>(tensor, rows);
}

}  // namespace fasa
