// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  const std::string folder = std::string(FASA_SOURCE_DIR) + "/tests/runtime/corpus/fc_map";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

void run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

TEST(FcMapFuzz, SeedsAndTheirPrefixes) {
  const auto texts = seeds();
  ASSERT_GE(texts.size(), 5u);
  for (const std::string& text : texts) {
    for (size_t size = 0; size <= text.size(); ++size) run(text.substr(0, size));
  }
}

TEST(FcMapFuzz, Mutations) {
  std::mt19937 random(7);
  for (const std::string& seed : seeds()) {
    for (int round = 0; round < 200; ++round) {
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
      run(text);
    }
  }
}

}  // namespace
