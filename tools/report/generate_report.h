// The results of a generation, as JSON and as a table.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/config/config.h"
#include "runtime/fasa.hpp"
#include "runtime/llm/generation/generator.h"

namespace fasa {

struct GenerateReport {
  GenerateResult result;
  std::string model;
  std::string device;
  bool virtual_clock = false;
  DType dtype = DType::kF32;         // of weights and activations
  RowDType row_dtype = DType::kF32;  // of rows
  uint64_t shared_row_bytes = 0;     // if all host rows share memory; 0 = they do not
  uint64_t weight_bytes = 0;         // on the device, scales included
  FetchMetrics fetch;
  MemoryUse device_memory;
  uint64_t full_kv_bytes = 0;  // keys and values of all cached tokens in 16 bits
  std::string map;             // path of the FC map; "" = not needed
  double map_seconds = 0;      // making it from the prompt; 0 = it existed
  Sampling sampling;           // flags merged over generation_config.json
  Config config;

  double tpot_ms() const;  // per decode step, on the device's clock
  double rows_per_step() const;
  double bytes_per_step() const;
};

nlohmann::json to_json(const GenerateReport& report);
std::string to_table(const GenerateReport& report);  // lines of at most 100 columns

}  // namespace fasa
