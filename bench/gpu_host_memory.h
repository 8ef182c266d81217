// Host memory as a GPU reads it: the pages that it has, and rows gathered from it by a kernel.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"

namespace fasa::bench {

// Share of the mapping's resident bytes that are in huge pages; below 0: not known.
inline double huge_page_share(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(data);
  bool inside = false;
  double resident = 0, huge = 0, page = 0;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string key;
    double kilobytes = 0;
    words >> key;
    if (!key.empty() && key.back() != ':') {
      if (inside) break;
      const size_t dash = key.find('-');
      if (dash == std::string::npos) continue;
      inside = std::stoull(key.substr(0, dash), nullptr, 16) <= at &&
               at < std::stoull(key.substr(dash + 1), nullptr, 16);
      continue;
    }
    if (!inside || !(words >> kilobytes)) continue;
    if (key == "Rss:") resident = kilobytes;
    if (key == "AnonHugePages:") huge = kilobytes;
    if (key == "KernelPageSize:") page = kilobytes;
  }
  if (page > 4) return 1;  // reserved huge pages, which are not counted as resident
  return resident > 0 ? huge / resident : -1;
}

// Rows of 32 to 512 bytes at random addresses of `bytes` of host memory, read over the link by the
// kernel that fetches missing rows: microseconds and bytes per second, the best of five.
inline nlohmann::json gathered_reads(Device& device, size_t bytes) {
  constexpr int kHeads = 8;
  constexpr size_t kMoved = size_t{8} << 20;
  const Stream stream = device.create_stream(StreamPriority::kNormal, "gathers");
  const Event before = device.create_event(), after = device.create_event();
  const Buffer host = device.allocate(MemorySpace::kHost, bytes, "gathered rows");
  std::fill_n(host.data(), bytes, std::byte{1});
  const Buffer rows = device.allocate(MemorySpace::kDevice, kMoved, "gathered rows");
  nlohmann::json rates = {{"host_bytes", bytes}, {"huge_page_share", huge_page_share(host.data())}};
  for (const int row_bytes : {32, 64, 128, 512}) {
    GatherParams params;
    params.layout.layers = 1;
    params.layout.kv_heads = kHeads;
    params.layout.row = {DType::kBF16, row_bytes / 4, row_bytes / 4};
    params.count = 1;
    const size_t row = static_cast<size_t>(params.layout.row.bytes());
    params.wave = static_cast<int32_t>(kMoved / row / kHeads);
    std::vector<FetchItem> fetches;
    std::mt19937_64 random(1);
    for (size_t i = 0; i < static_cast<size_t>(params.wave) * kHeads; ++i) {
      fetches.push_back({host.data() + random() % (bytes / row) * row, rows.data() + i * row});
    }
    const std::vector<int32_t> counts(kHeads, params.wave);
    const auto copied = [&](const void* data, size_t size) {
      Buffer there = device.allocate(MemorySpace::kDevice, size, "gathered rows");
      device.copy(there.data(), data, size, CopyKind::kHostToDevice, stream.view());
      device.synchronize(stream.view());
      return there;
    };
    const Buffer list = copied(fetches.data(), fetches.size() * sizeof(FetchItem));
    const Buffer sizes = copied(counts.data(), counts.size() * sizeof(int32_t));
    params.fetches = list.as<FetchItem>();
    params.fetch_counts = sizes.as<int32_t>();
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      device.record(before.view(), stream.view());
      device.enqueue(params, stream.view(), {});
      device.record(after.view(), stream.view());
      device.synchronize(after.view());
      const double seconds = device.seconds_at(after.view()) - device.seconds_at(before.view());
      if (best == 0 || seconds < best) best = seconds;
    }
    const double moved = static_cast<double>(fetches.size() * row);
    rates[std::to_string(row_bytes)] = {{"us", best * 1e6}, {"bytes_per_second", moved / best}};
  }
  return rates;
}

}  // namespace fasa::bench
