// A profile as JSON, as tables for people and as one HTML page.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/profile/profiled_decode.h"

namespace fasa {

// One config's decode, profiled.
struct ProfileRun {
  std::string name;  // of its config file; "" where there is one run only
  Config config;
  std::vector<std::string> notes;  // what a reader has to know
  std::unique_ptr<ProfiledDecode> decode;

  const Profile& profile() const { return decode->profile(); }
};

struct ProfileReport {
  std::string subject;  // the model's folder, or the geometry's name
  Geometry geometry;
  int64_t tokens = 0;  // of each sequence before the first step, warm-up included
  int sequences = 1;   // that decode together
  int warmup = 0;
  int weight_bits = 0;           // of a synthetic decode; 0 = attention alone
  std::string trace;             // of a synthetic decode
  std::string compute;           // "modelled" or "real"
  std::vector<ProfileRun> runs;  // one, or two that took turns
};

// The first run; of two also `compare`, a list of both.
nlohmann::json to_json(const ProfileReport& report);
// "131072 tokens", "4 sequences of 131072 tokens".
std::string context_of(const ProfileReport& report);
std::string to_table(const ProfileReport& report);  // lines of at most 100 columns
std::string to_html(const ProfileReport& report);   // needs nothing beside itself

// Two runs that took turns: what the table and the JSON say of both.
struct ProfileRatio {
  double ratio = 1;  // mean step of the second over that of the first
  double low = 1;    // of single pairs of steps
  double high = 1;
};
ProfileRatio ratio_of(const Profile& first, const Profile& second);

}  // namespace fasa
