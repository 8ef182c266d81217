// Interface of the bodies that read rows: plain structs and a table of function pointers per
// instruction set. Included by files compiled for one instruction set, so it includes no header
// with inline functions.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/code_width.h"

namespace fasa::cpu {

// Queries and values in f32 scratch are padded with zeros to this many floats, the widest register.
inline constexpr int kPadFloats = 16;
inline constexpr int kPadBf16 = 32;   // for bf16 queries
inline constexpr int kPadCodes = 32;  // for 16-bit queries
inline constexpr int kMaxTileTokens = 32;
inline constexpr int kMaxPageTokens = 64;

// A tile of FAC for the query heads of one KV head.
struct TileTask {
  const float* q = nullptr;  // [group][q_stride], zero beyond key_dim
  int64_t q_stride = 0;
  // The same queries in bf16, if they are bf16 and the bodies want that, else null.
  const uint16_t* q_bf16 = nullptr;
  // The same queries as 16-bit codes with a scale per head, if rows are coded, else null.
  const int16_t* q_codes = nullptr;  // [group][key_dim padded to kPadCodes]
  const float* q_scales = nullptr;   // [group]
  int group = 0;
  int key_dim = 0;
  int value_dim = 0;
  int64_t key_bytes = 0;  // offset of the value in a row
  int64_t row_bytes = 0;
  const unsigned char* const* rows = nullptr;       // [tokens]
  int tokens = 0;                                   // 1 ... kMaxTileTokens
  const unsigned char* const* next_rows = nullptr;  // prefetched meanwhile
  int next_tokens = 0;
  float scale = 1;
  // ALiBi; null: none. Head h adds scale * slopes[h] * distances[t] to its scores.
  const float* slopes = nullptr;     // [group]
  const float* distances = nullptr;  // [kMaxTileTokens], key position - query position
  float score_cap = 0;               // cap of scaled scores, 0: none
  float* partials = nullptr;  // of head h: partials + h * partial_stride, see softmax_state.h
  int64_t partial_stride = 0;
};

// Addresses of a low-bit tile's data. For each token: the words of its codes, its page's parameters
// and their base (slice_format.h), or its values in f32 [padded value_dim].
struct LowBitTile {
  int tokens = 0;  // up to kMaxTileTokens
  const unsigned char* codes[kMaxTileTokens];
  const unsigned char* parameters[kMaxTileTokens];
  const float* bases[kMaxTileTokens];
  const float* values[kMaxTileTokens];  // null: codes
};

// A tile of a low-bit set for the query heads of one KV head.
struct LowBitTask {
  int group = 0;
  int value_dim = 0;
  const LowBitTile* tile = nullptr;
  const float* scores = nullptr;  // [group][tokens], before the scale
  int64_t score_stride = 0;
  float scale = 1;
  float* partials = nullptr;  // of head h: partials + h * partial_stride, see softmax_state.h
  int64_t partial_stride = 0;
};

// One page of keys for a block of query rows (token by token, the GQA group's heads side by side).
struct PageTask {
  const unsigned char* const* rows = nullptr;  // [kMaxPageTokens]; only slots < slots are read
  int slots = 0;
  int64_t position = 0;  // of slot 0
  int key_dim = 0;
  int value_dim = 0;
  int64_t key_bytes = 0;
  float scale = 1;
  int group = 0;
  int query_rows = 0;             // tokens * group
  int64_t first_query = 0;        // position of the first token
  int64_t window = 0;             // tokens; 0: all
  const float* slopes = nullptr;  // [group]; ALiBi as in TileTask, null: none
  float score_cap = 0;            // cap of scaled scores, 0: none
  // [query_rows][q_stride]. For prefill_pairs: pairs of bf16, zero beyond key_dim; each query is
  // the sum of its q_parts, [q_parts][q_stride / q_parts].
  const float* q = nullptr;
  int64_t q_stride = 0;
  int q_parts = 1;
  // Weights may be rounded to bf16, because outputs are.
  bool rounds_weights = false;
  // Scratch: transposed keys [key_dim][64] or pairs of them [key_dim / 2][64], values
  // [64][value_stride], scores [query_rows][64], factors [query_rows].
  float* keys = nullptr;
  float* values = nullptr;
  float* scores = nullptr;
  float* factors = nullptr;
  // State: one running softmax per row, its values apart from max and sum.
  float* max = nullptr;      // [query_rows]
  float* sum = nullptr;      // [query_rows]
  float* out = nullptr;      // [query_rows][value_stride]
  int64_t value_stride = 0;  // a multiple of kPadFloats
};

// Bodies that depend on the rows' element type are indexed by RowDType.
struct RowBodies {
  void (*attend_tile[4])(const TileTask&);
  void (*prefill_page[4])(const PageTask&);
  // Takes bf16 queries if key_dim is even; null: prefill_page takes queries in f32.
  void (*prefill_pairs[4])(const PageTask&);
  bool splits_queries;  // prefill_pairs takes all queries, others than bf16 in two parts
  // Converts a whole vector to f32, exactly.
  void (*expand[4])(const void* in, int64_t count, float* out);
  void (*merge)(float* state, const float* partial, int value_dim);
  void (*attend_low_bit[kCodeWidthCount])(const LowBitTask&);
  bool wants_bf16_queries;  // attend_tile scores bf16 keys by dot products of bf16
};

extern const RowBodies kRowBodiesPortable;
extern const RowBodies kRowBodiesAvx2;
extern const RowBodies kRowBodiesAvx512;
extern const RowBodies kRowBodiesVnni;
void prefill_bf16_rows_amx(const PageTask& task);
void prefill_int8_rows_amx(const PageTask& task);

}  // namespace fasa::cpu
