// What a generation did, as JSON and as a table for people.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/config/config.h"
#include "runtime/fasa.hpp"
#include "runtime/llm/generator.h"

namespace fasa {

struct GenerateReport {
  GenerateResult result;
  std::string model;
  std::string device;
  bool virtual_clock = false;
  DType dtype = DType::kF32;         // of weights and activations
  RowDType row_dtype = DType::kF32;  // of rows
  uint64_t shared_row_bytes = 0;  // of physical memory that all host rows share; 0 = each its own
  uint64_t weight_bytes = 0;      // on the device, scales included
  FetchMetrics fetch;
  MemoryUse device_memory;
  uint64_t full_kv_bytes = 0;  // keys and values of every cached token in 2 bytes
  std::string map;             // path of the FC map, "" = none was needed
  double map_seconds = 0;      // spent on making it from the prompt, 0 = it was there
  Sampling sampling;           // flags over generation_config.json
  Config config;

  double tpot_ms() const;  // per decode step, on the device's clock
  double rows_per_step() const;
  double bytes_per_step() const;
};

nlohmann::json to_json(const GenerateReport& report);
std::string to_table(const GenerateReport& report);  // lines of at most 100 columns

// JSON text must be UTF-8: bytes that are none become U+FFFD, and *lossy says so.
std::string valid_utf8(const std::string& bytes, bool* lossy);

}  // namespace fasa
