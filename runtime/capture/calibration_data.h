// The input of a calibration: a text, with or without probes, and the positions of its queries.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa {

struct CalibrationData {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;  // of the queries, rising
  bool probes = false;             // some queries are at repeats of planted strings
  std::string hash() const;        // of tokens and positions: "fnv1a:" and 16 hexadecimal digits
};

struct DataOptions {
  int64_t tokens = 4096;  // probes included
  int queries = 96;
  bool probes = true;  // a third of the queries are probes
  uint64_t seed = 1;
};

// Draws queries from the text's last three quarters: early tokens have too little context to select
// from. Short texts give fewer queries than requested. Throws UsageError for an empty text.
CalibrationData make_calibration_data(std::span<const int32_t> text, const DataOptions& options);

// The project's texts that the bundled model was not trained on: from `texts` beside the model's
// folder, else from the installation or the source tree. Throws InputError if there are none.
std::vector<std::string> default_calibration_texts(const std::string& model_dir);

// The beginnings of all files, of equal length if possible, `tokens` in all. Without a tokenizer
// the files hold token ids, separated by white space or commas, with or without brackets. Throws
// InputError with file and position.
std::vector<int32_t> read_calibration_texts(const std::vector<std::string>& paths,
                                            const text::TextCoder* tokenizer, int64_t tokens);

}  // namespace fasa
