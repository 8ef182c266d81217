// Writes slices on the host: scatters the newest page's keys into the tail's layout, and codes a
// full tail page into its slice block. The bytes are the same on every machine (tests compare with
// reference/slices.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/slice_format.h"
#include "runtime/base/dtype.h"

namespace fasa {

// The dimensions that kernels take, with those of second parts at the end: [heads][format.dims] of
// [heads][format.coded_dims()].
std::vector<int16_t> stored_dims(const SliceFormat& format, const std::vector<int16_t>& coded);

// Writes one token's slice into a tail page of `format` (SliceFormat::tail() of the slice's).
// `key`: the whole key (or value) of one token and KV head, in the row's dtype; `slice_dims`:
// [format.dims] dimensions of it, null = the first ones; `slot`: position % kPageTokens. Padding
// dimensions are zeroed.
void write_tail_token(const SliceFormat& format, const int16_t* slice_dims, DType key_dtype,
                      const void* key, int slot, std::byte* tail_page);

// Codes a full tail page (layout of format.tail()) into a slice page of `format`; `base`: this page
// and head's f32 in the slice block's header, written for coded formats only.
void seal_page(const SliceFormat& format, const std::byte* tail_page, std::byte* slice_page,
               float* base);

// The value that a page of `format` holds for one dimension (an index into the slice) and token;
// `base`: the page's, used by coded formats only. For studies: one value at a time.
float slice_value(const SliceFormat& format, const std::byte* page, float base, int dim, int token);

}  // namespace fasa
