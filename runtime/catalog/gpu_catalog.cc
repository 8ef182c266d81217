#include "runtime/catalog/gpu_catalog.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/catalog/loose_name.h"
#include "runtime/io/nearest.h"

namespace fasa {
namespace {

struct Row {
  const char* name;  // without the memory
  int gigabytes;     // as sold
  int mebibytes;     // visible to programs; 0 = all
  double gb_per_s;
  double teraflops;
  int flops_a_cycle;  // of a multiprocessor
  int pcie;
  int lanes;
};

// From vendor data sheets and architecture papers (NVIDIA: Turing, GA102, Ada, RTX Blackwell, A100,
// H100, H200). Bandwidth and tensor throughput are without sparsity and with f32 accumulation, on
// GeForce half of the advertised figure. Memory of data-centre cards is the capacity with error
// correction.
constexpr Row kRows[] = {
    {"RTX 2080 Ti", 11, 0, 616, 53.8, 512, 3, 16},
    {"T4", 16, 15360, 320, 65, 1024, 3, 16},
    {"RTX 3060", 12, 0, 360, 25.5, 512, 4, 16},
    {"RTX 3060 Ti", 8, 0, 448, 32.4, 512, 4, 16},
    {"RTX 3070", 8, 0, 448, 40.6, 512, 4, 16},
    {"RTX 3070 Ti", 8, 0, 608, 43.5, 512, 4, 16},
    {"RTX 3080", 10, 0, 760, 59.5, 512, 4, 16},
    {"RTX 3080", 12, 0, 912, 61.3, 512, 4, 16},
    {"RTX 3080 Ti", 12, 0, 912, 68.2, 512, 4, 16},
    {"RTX 3090", 24, 0, 936, 71, 512, 4, 16},
    {"RTX 3090 Ti", 24, 0, 1008, 80, 512, 4, 16},
    {"RTX A6000", 48, 46068, 768, 154.8, 1024, 4, 16},
    {"RTX 4060", 8, 0, 272, 30.2, 512, 4, 8},
    {"RTX 4060 Ti", 8, 0, 288, 44.1, 512, 4, 8},
    {"RTX 4060 Ti", 16, 0, 288, 44.1, 512, 4, 8},
    {"RTX 4070", 12, 0, 504, 58.3, 512, 4, 16},
    {"RTX 4070 Super", 12, 0, 504, 71, 512, 4, 16},
    {"RTX 4070 Ti", 12, 0, 504, 80.2, 512, 4, 16},
    {"RTX 4070 Ti Super", 16, 0, 672, 88.2, 512, 4, 16},
    {"RTX 4080", 16, 0, 717, 97.5, 512, 4, 16},
    {"RTX 4080 Super", 16, 0, 736, 104.4, 512, 4, 16},
    {"RTX 4090", 24, 0, 1008, 165.2, 512, 4, 16},
    {"RTX 6000 Ada", 48, 46068, 960, 364.2, 1024, 4, 16},
    {"RTX 5060", 8, 0, 448, 38.4, 512, 5, 8},
    {"RTX 5060 Ti", 8, 0, 448, 47.4, 512, 5, 8},
    {"RTX 5060 Ti", 16, 0, 448, 47.4, 512, 5, 8},
    {"RTX 5070", 12, 0, 672, 61.8, 512, 5, 16},
    {"RTX 5070 Ti", 16, 0, 896, 87.9, 512, 5, 16},
    {"RTX 5080", 16, 0, 960, 112.6, 512, 5, 16},
    {"RTX 5090", 32, 0, 1792, 209.5, 512, 5, 16},
    {"A10", 24, 23028, 600, 125, 1024, 4, 16},
    {"A40", 48, 46068, 696, 149.7, 1024, 4, 16},
    {"A100", 40, 40536, 1555, 312, 2048, 4, 16},
    {"A100", 80, 81251, 1935, 312, 2048, 4, 16},
    {"A100 SXM", 80, 81251, 2039, 312, 2048, 4, 16},
    {"L4", 24, 23034, 300, 121, 1024, 4, 16},
    {"L40S", 48, 46068, 864, 362, 1024, 4, 16},
    {"H100 PCIe", 80, 81559, 2039, 756, 4096, 5, 16},
    {"H100 SXM", 80, 81559, 3350, 989, 4096, 5, 16},
    {"H200", 141, 143771, 4800, 989, 4096, 5, 16},
};

bool has_sizes(const Row& row) {
  return std::count_if(std::begin(kRows), std::end(kRows), [&](const Row& other) {
           return std::string_view(other.name) == row.name;
         }) > 1;
}

Gpu gpu_of(const Row& row) {
  Gpu gpu;
  gpu.name = has_sizes(row) ? fmt::format("{} {}GB", row.name, row.gigabytes) : row.name;
  const uint64_t whole = uint64_t{1024} * static_cast<uint64_t>(row.gigabytes);
  gpu.memory_bytes = (row.mebibytes > 0 ? static_cast<uint64_t>(row.mebibytes) : whole) << 20;
  gpu.memory_bandwidth = row.gb_per_s * 1e9;
  gpu.tensor_flops = row.teraflops * 1e12;
  gpu.cycles = gpu.tensor_flops / row.flops_a_cycle;
  gpu.compute_capability = row.pcie < 4 ? 75 : 80;  // Turing is the last with PCIe 3
  gpu.pcie_generation = row.pcie;
  gpu.pcie_lanes = row.lanes;
  return gpu;
}

std::string without_maker(std::string name) {
  for (const std::string_view word : {"nvidia", "geforce", "rtx"}) {
    if (name.starts_with(word)) name.erase(0, word.size());
  }
  return name;
}

bool is_called(const Row& row, const std::string& wanted) {
  const std::string base = without_maker(loose_name(row.name));
  return wanted == base || wanted == base + fmt::format("{}gb", row.gigabytes);
}

std::vector<std::string> names_of(const std::vector<const Gpu*>& chosen) {
  std::vector<std::string> names;
  for (const Gpu* gpu : chosen) names.push_back(gpu->name);
  return names;
}

}  // namespace

double Gpu::link_bandwidth() const {
  // Share of a lane's raw bandwidth (after line coding) that large copies reach; the rest goes to
  // packet headers and flow control.
  constexpr double kEffective = 0.8;
  const double lane = pcie_generation == 3 ? 0.985e9 : pcie_generation == 4 ? 1.969e9 : 3.938e9;
  return kEffective * lane * pcie_lanes;
}

std::span<const Gpu> gpus() {
  static const std::vector<Gpu> all = [] {
    std::vector<Gpu> list;
    for (const Row& row : kRows) list.push_back(gpu_of(row));
    return list;
  }();
  return all;
}

const Gpu& find_gpu(std::string_view name) {
  const std::string wanted = without_maker(loose_name(name));
  std::vector<const Gpu*> found;
  std::vector<const Gpu*> all;
  for (size_t i = 0; i < gpus().size(); ++i) {
    all.push_back(&gpus()[i]);
    if (is_called(kRows[i], wanted)) found.push_back(all.back());
  }
  if (found.size() == 1) return *found.front();
  if (found.size() > 1) {
    throw UsageError(
        fmt::format("GPU \"{}\" is ambiguous; it could be {}; give the memory size too", name,
                    fmt::join(names_of(found), ", ")));
  }
  constexpr size_t kShown = 4;
  throw UsageError(
      fmt::format("GPU \"{}\" is unknown (nearest: {}); fasa plan --list shows all names", name,
                  fmt::join(nearest_names(name, names_of(all), kShown), ", ")));
}

}  // namespace fasa
