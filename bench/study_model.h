// Shared by the studies of calibration and of selections: the bundled model, texts that were not in
// its training, and questions about facts planted in them.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/question_text.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/llm/model.h"
#include "runtime/text/tokenizer.h"
#include "tests/support/source_path.h"

namespace fasa::bench {

inline std::string read_study_text(const std::string& name) {
  return read_file(source_path("models/texts/" + name));
}

struct StudyModel {
  std::unique_ptr<Device> device;
  Model model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::string evaluation, calibration;  // texts

  Geometry geometry() const { return model.config().geometry(); }
  // Text number `index` for measuring distant attention: `bytes` bytes with eight facts, followed
  // by all questions with their answers.
  QuestionText asked_text(int index, size_t bytes) const {
    constexpr int kFacts = 8;
    const NeedleText needle = plant_facts(evaluation, static_cast<size_t>(index) * 3000, bytes,
                                          kFacts, 500 + static_cast<uint64_t>(index));
    return with_questions(*tokenizer, needle, kFacts);
  }
};

// On the cpu device, in f32.
inline StudyModel open_study_model() {
  const std::string folder = source_path("models/needle-3m");
  DeviceOptions options;
  options.name = "cpu";
  auto device = open_device(options);
  Model model = Model::load(folder, *device, DType::kF32);
  return {std::move(device), std::move(model), text::Tokenizer::load_if_present(folder),
          read_study_text("revelation.txt").substr(20000),
          read_study_text("ruth.txt") + read_study_text("state-of-the-union-1996.txt")};
}

// `count` of the positions [first, end), rising.
inline std::vector<int32_t> sample_positions(int64_t first, int64_t end, int count, uint64_t seed) {
  std::vector<int32_t> all(static_cast<size_t>(end - first)), chosen;
  std::iota(all.begin(), all.end(), static_cast<int32_t>(first));
  std::mt19937_64 random(seed);
  std::sample(all.begin(), all.end(), std::back_inserter(chosen), count, random);
  return chosen;
}

}  // namespace fasa::bench
