// Interface of the bodies that multiply packed weights (kernels/packed_format.h): plain structs and
// a table of function pointers per instruction set. Included by files compiled for one instruction
// set, so it includes no header with inline functions.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace fasa::cpu {

inline constexpr int kPanelColumns = 16;
inline constexpr int kBlockPlaces = 32;
inline constexpr int kSuperPlaces = 256;
inline constexpr int kPanelsAtOnce = 2;
// Rows that a body multiplies each code by at once: in f32, and in the other types.
inline constexpr int kFewPackedRows = 4;
inline constexpr int kManyPackedRows = 8;
// Places whose scales are widened at a time; a step is at most as long.
inline constexpr int kChunkPlaces = 1024;

// PackedFormat and PackedPanel as plain numbers.
struct PackedShape {
  int bits = 4;
  bool has_table = false;
  int centre = 0;              // value(code) = code - centre, without a table
  bool is_float = false;       // 8 bits: e4m3
  float table[16] = {};        // at most 4 bits: value(low bits), with or without a given table
  int8_t byte_table[16] = {};  // the same for whole numbers, / table_unit
  float table_unit = 1;
  int scale_kind = 0;   // ScaleKind
  int offset_kind = 0;  // OffsetKind
  int64_t group = 0;
  int64_t blocks = 0;
  int64_t block_bytes = 0;
  int64_t scales = 0;
  int64_t offsets = 0;
  int64_t super_scales = 0;
  int64_t super_offsets = 0;
  int64_t bytes = 0;  // per panel
};

// What a step of a row adds to its products. Whole numbers of 8 or 16 bits stand for `scale` each.
struct PackedNumbers {
  float sum = 0;     // of the step's activations, for offsets
  float scale = 1;   // of whole numbers, times table_unit
  int32_t base = 0;  // of whole numbers: minus their sum times the codes' centre
};

// Rows times panels: y[row][panel][column] = sum over steps of
//   scale * x_scale * (values . x) + offset * sum
// Rows lie side by side in each block, so that a body's rows are at fixed distances.
struct PackedTask {
  const PackedShape* shape = nullptr;
  int64_t step = 0;  // places per scale: divides the scale group; 16 or a multiple of 32
  int panels = 0;    // 1 ... kPanelsAtOnce; 1 for more rows than two_panel_rows
  const unsigned char* panel[kPanelsAtOnce] = {};
  int rows = 0;  // 1 ... kFewPackedRows of f32, kManyPackedRows of other types
  // [blocks][all_rows][kBlockPlaces]: f32; bf16; int16; int8 in byte order
  const void* x = nullptr;
  const PackedNumbers* numbers = nullptr;  // [steps][all_rows]
  int64_t all_rows = 0;                    // rows of the arrays; `rows` of them are meant
  bool sums = false;                       // whether there are offsets
  float* y = nullptr;                      // [rows][kPanelsAtOnce][kPanelColumns]
};

// A whole panel: out[input of place][column], 16 elements per row.
struct UnpackTask {
  const PackedShape* shape = nullptr;
  const unsigned char* panel = nullptr;
  const int32_t* order = nullptr;  // input of a place, -1: none; null: in order
  int64_t inputs = 0;
  bool bf16 = false;  // rounded to nearest even; else f32
  void* out = nullptr;
  int64_t stride = 0;  // elements between rows of inputs
};

// A row's bits are the same for any number of rows.
struct PackedBodies {
  void (*multiply_f32)(const PackedTask&);  // floats of 8 bits, tables
  // Not for floats of 8 bits. Steps of at most 32 places; tables of `byte_table`.
  void (*multiply_int16)(const PackedTask&);
  // Null: int16 instead.
  void (*multiply_bf16)(const PackedTask&);
  void (*multiply_int8)(const PackedTask&);
  void (*unpack)(const UnpackTask&);
  int two_panel_rows;  // more rows take one panel at a time: their sums fill the registers
};

extern const PackedBodies kPackedBodiesPortable;
extern const PackedBodies kPackedBodiesAvx2;
extern const PackedBodies kPackedBodiesAvx512;
extern const PackedBodies kPackedBodiesVnni;

}  // namespace fasa::cpu
