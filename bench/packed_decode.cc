// Bandwidth of packed weights in decode, compared with this machine's read bandwidth.
//
//   packed_decode [--outputs N] [--inputs N] [--matrices N] [--rows N...] [--repeat N]
//
// Matrices take turns, so that each is read from memory. GB/s of the packed bytes, including scales
// and zeros; the share is relative to plain reads, which alternate with them in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/stream.h"
#include "kernels/cpu/model/packed_linear.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"

namespace fasa::bench {
namespace {

struct Options {
  int64_t outputs = 14336;
  int64_t inputs = 4096;
  int matrices = 24;
  std::vector<int64_t> rows = {1, 2, 4, 8};
  int repeat = 5;
};

struct Kind {
  const char* name;
  PackedFormat format;
  PackedActivations activations = PackedActivations::kModel;
};

const Kind kKinds[] = {
    {"int4 / 64, bf16", {4, 64, ScaleKind::kBF16, OffsetKind::kNone, false, 8}},
    {"int4 / 64, int8",
     {4, 64, ScaleKind::kBF16, OffsetKind::kNone, false, 8},
     PackedActivations::kInt8},
    {"AWQ / 128, bf16", {4, 128, ScaleKind::kF16, OffsetKind::kZero, false, 8}},
    {"AWQ / 128, int8",
     {4, 128, ScaleKind::kF16, OffsetKind::kZero, false, 8},
     PackedActivations::kInt8},
    {"Q4_K, int8",
     {4, 32, ScaleKind::kSuper, OffsetKind::kSuper, false, 0},
     PackedActivations::kInt8},
    {"Q4_K, bf16", {4, 32, ScaleKind::kSuper, OffsetKind::kSuper, false, 0}},
    {"IQ4_XS, bf16", {.scale = ScaleKind::kSuper, .has_table = true}},
    {"Q3_K, bf16", {3, 16, ScaleKind::kSuper, OffsetKind::kNone, false, 4}},
    {"Q2_K, bf16", {2, 16, ScaleKind::kSuperNibble, OffsetKind::kSuperNibble, false, 0}},
    {"FP8 / 128, bf16", {.bits = 8, .group = 128, .scale = ScaleKind::kBF16, .is_float = true}},
    {"int8 / 64, bf16", {8, 64, ScaleKind::kBF16, OffsetKind::kNone, false, 128}},
    {"int8 / 64, int8",
     {8, 64, ScaleKind::kBF16, OffsetKind::kNone, false, 128},
     PackedActivations::kInt8},
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// GB/s of a pass over all matrices, and of plain reads.
void measure(const Options& options, const Kind& kind, int64_t rows, Device& device,
             Stream* stream) {
  const PackedLinear linear({.format = kind.format,
                             .outputs = options.outputs,
                             .inputs = options.inputs,
                             .dtype = DType::kBF16,
                             .y_stride = options.outputs,
                             .activations = kind.activations});
  const Buffer weights = device.allocate(
      MemorySpace::kDevice, linear.bytes() * static_cast<size_t>(options.matrices), "weights");
  std::fill_n(weights.as<uint8_t>(), weights.bytes(), uint8_t{0x11});
  const std::vector<uint16_t> x(static_cast<size_t>(rows * options.inputs), 0x3f80);
  std::vector<float> y(static_cast<size_t>(rows * options.outputs));
  const auto pass = [&] {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < options.matrices; ++i) {
      linear.decode(weights.data() + static_cast<size_t>(i) * linear.bytes(), x.data(), rows,
                    options.outputs, y.data());
    }
    return static_cast<double>(weights.bytes()) / seconds_since(begin) / 1e9;
  };
  pass();
  std::vector<double> speeds, plain;
  for (int i = 0; i < options.repeat; ++i) {
    speeds.push_back(pass());
    plain.push_back(stream->read() / 1e9);
  }
  fmt::print("{:<16} | {:>4} | {:6.1f} | {:6.1f} | {:5.2f}\n", kind.name, rows, median(speeds),
             median(plain), median(speeds) / median(plain));
}

int run(int argc, char** argv) {
  CLI::App app;
  Options options;
  app.add_option("--outputs", options.outputs)->check(CLI::Range(1, 1 << 20));
  app.add_option("--inputs", options.inputs)->check(CLI::Range(1, 1 << 20));
  app.add_option("--matrices", options.matrices)->check(CLI::Range(1, 1000));
  app.add_option("--rows", options.rows)->check(CLI::Range(1, 64));
  app.add_option("--repeat", options.repeat)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  const auto device = open_device({});
  Stream stream(*device);
  fmt::print("{:<16} | rows |   GB/s | plain  | share\n", "weights, x");
  for (const Kind& kind : kKinds) {
    for (const int64_t rows : options.rows) measure(options, kind, rows, *device, &stream);
  }
  return 0;
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  try {
    return fasa::bench::run(argc, argv);
  } catch (const fasa::Error& error) {
    fmt::print(stderr, "packed_decode: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
}
