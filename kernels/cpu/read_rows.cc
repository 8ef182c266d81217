// Decodes rows to keys and values. One task per (page, kv_head).

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_codec.h"
#include "kernels/cpu/rows/row_convert.h"
#include "kernels/kernel_work.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

void read_page(const ReadRowsParams& params, int page, int head) {
  const CacheLayout& layout = params.layout;
  const RowFormat& format = layout.row;
  const auto element = [](const TensorView& view, int64_t token, int kv_head) {
    return static_cast<std::byte*>(view.data) +
           view.offset(token, kv_head) * dtype_bytes(view.dtype);
  };
  const int end = params.first + static_cast<int>(params.k.tokens);
  const int last = std::min(end, (page + 1) * kPageTokens);
  for (int position = std::max(params.first, page * kPageTokens); position < last; ++position) {
    const std::byte* row =
        params.row_blocks[page] + layout.row_offset(params.layer, head, position % kPageTokens);
    const int64_t token = position - params.first;
    const RowElements key = row_key(format, row);
    convert_elements(key.dtype, key.data, 0, format.key_dim, params.k.dtype,
                     element(params.k, token, head));
    const RowElements value = row_value(format, row);
    convert_elements(value.dtype, value.data, 0, format.value_dim, params.v.dtype,
                     element(params.v, token, head));
  }
}

}  // namespace

template <>
KernelWork run(const ReadRowsParams& params) {
  const int kv_heads = params.layout.kv_heads;
  const int tokens = static_cast<int>(params.k.tokens);
  if (tokens == 0) return {};
  const int first = params.first / kPageTokens;
  const int pages = (params.first + tokens - 1) / kPageTokens - first + 1;
  parallel_for(0, pages * kv_heads,
               [&](int task) { read_page(params, first + task / kv_heads, task % kv_heads); });
  const uint64_t bytes = rows_bytes(params.layout, int64_t{tokens} * kv_heads);
  KernelWork work;
  work.device_bytes = params.access == RowAccess::kLocal ? 2 * bytes : bytes;
  if (params.access == RowAccess::kOverLink) work.h2d_bytes = bytes;
  return work;
}

}  // namespace fasa::cpu
