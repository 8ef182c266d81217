// Runs a libFuzzer target without libFuzzer: on seeds, their prefixes and reproducible
// pseudo-random changes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/support/source_path.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fasa::testing {

// The files of a folder below tests/, by name.
inline std::vector<std::string> fuzz_seeds(const std::string& corpus) {
  std::vector<std::filesystem::path> paths;
  const std::string folder = source_path("tests/" + corpus);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

inline void fuzz_one(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

inline void fuzz_prefixes(const std::vector<std::string>& seeds) {
  for (const std::string& text : seeds) {
    for (size_t size = 0; size <= text.size(); ++size) fuzz_one(text.substr(0, size));
  }
}

// FUZZ_SEED in the environment gives other changes.
inline void fuzz_changes(const std::vector<std::string>& seeds, int rounds) {
  const char* const drawn = std::getenv("FUZZ_SEED");
  std::mt19937 random(drawn != nullptr ? static_cast<uint32_t>(std::atoll(drawn)) : 7);
  for (const std::string& seed : seeds) {
    for (int round = 0; round < rounds; ++round) {
      std::string text = seed;
      for (int change = 0; change < 3 && !text.empty(); ++change) {
        const size_t at = random() % text.size();
        switch (random() % 3) {
          case 0:
            text[at] = static_cast<char>(random());
            break;
          case 1:
            text.erase(at, 1 + random() % 4);
            break;
          default:
            text.insert(at, text.substr(random() % text.size(), random() % 8));
            break;
        }
      }
      fuzz_one(text);
    }
  }
}

}  // namespace fasa::testing
