// A profile as JSON and as tables.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/profile/profiled_decode.h"
#include "tools/commands/emulated_decode.h"
#include "tools/report/profile_advice.h"

namespace fasa {

// One config's decode, profiled.
struct ProfileRun {
  std::string name;  // of its config file; "" for a single run
  Config config;
  std::vector<std::string> notes;  // for the reader
  std::unique_ptr<ProfiledDecode> decode;
  WarmUp warmup = {};

  KernelCosts costs() const {  // of the machine that is emulated; else of a usual GPU
    return decode->device().traits().rates.kernels;
  }

  const Profile& profile() const { return decode->profile(); }
};

struct ProfileReport {
  std::string subject;  // the model's folder, or the geometry's name
  Geometry geometry;
  int64_t tokens = 0;      // of each sequence before the first step, warm-up included
  int sequences = 1;       // decoding together
  int step_tokens = 1;     // of each sequence
  int weight_bits = 0;     // synthetic decode; 0 = attention alone
  std::string trace;       // synthetic decode: its file
  std::string selections;  // where its selections are from
  Advice advice;
  std::string compute;           // "modelled" or "real"
  std::vector<ProfileRun> runs;  // one, or two that alternate
};

// The JSON of the first run. For two runs it also has `compare` and a list of both.
nlohmann::json to_json(const ProfileReport& report);
// "131072 tokens", "4 sequences of 131072 tokens".
std::string context_of(const ProfileReport& report);
// The machine that the times are for; values that neither a flag nor a config gives are marked.
std::string machine_of(const ProfileRun& run);
std::string to_table(const ProfileReport& report);  // as wide as the terminal

// The comparison of two alternating runs, for the table and the JSON.
struct ProfileRatio {
  double ratio = 1;  // mean step time of the second run over that of the first
  double low = 1;    // lowest ratio of a pair of steps
  double high = 1;
};
ProfileRatio ratio_of(const Profile& first, const Profile& second);

}  // namespace fasa
