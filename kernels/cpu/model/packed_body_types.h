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
inline constexpr int kMaxPackedRows = 4;
// Places whose scales are widened at a time; a step is at most as long.
inline constexpr int kChunkPlaces = 1024;
inline constexpr int kMaxSteps = kChunkPlaces / 16;

// PackedFormat and PackedPanel as plain numbers.
struct PackedShape {
  int bits = 4;
  bool has_table = false;
  int centre = 0;              // value(code) = code - centre, without a table
  bool is_float = false;       // 8 bits: e4m3
  float table[16] = {};        // at most 4 bits: value(low bits), with or without a given table
  int8_t byte_table[16] = {};  // the same for int8 activations, / table_unit
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

// Rows times panels: y[row][panel][column] = sum over steps of
//   scale * x_scale * (values . x) + offset * sum
struct PackedTask {
  const PackedShape* shape = nullptr;
  int64_t step = 0;  // places per scale: divides the scale group; 16 or a multiple of 32
  int panels = 0;    // 1 ... kPanelsAtOnce; 1 for more rows than two_panel_rows
  const unsigned char* panel[kPanelsAtOnce] = {};
  int rows = 0;                     // 1 ... kMaxPackedRows
  const void* x = nullptr;          // [rows][x_stride] by place: f32; bf16; int8 in byte order
  int64_t x_stride = 0;             // elements
  const float* sums = nullptr;      // [rows][steps] sums of x, scaled; null: no offsets
  const float* x_scales = nullptr;  // [rows][steps] for int8 activations, else null
  const float* x_totals = nullptr;  // [rows][steps] sums of their integers
  int64_t step_stride = 0;          // elements between rows of the arrays per step
  float* y = nullptr;               // [rows][kPanelsAtOnce][kPanelColumns]
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
  void (*multiply_f32)(const PackedTask&);
  // Not for floats of 8 bits. Null: bf16 is widened to f32 first; x is integers in f32.
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
