// What calibration runs a model over: a text, with probes or without, and which of its positions
// are queries.
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
  bool probes = false;             // some of them are at repeats of planted strings
  std::string hash() const;        // of both: "fnv1a:" and 16 hexadecimal digits
};

struct DataOptions {
  int64_t tokens = 4096;  // in all, probes included
  int queries = 96;
  bool probes = true;  // a third of the queries
  uint64_t seed = 1;
};

// Queries on the text are drawn from its last three quarters: the first tokens see too little to
// select from. Fewer than asked for where the text is short. Throws UsageError for an empty text.
CalibrationData make_calibration_data(std::span<const int32_t> text, const DataOptions& options);

// The texts that ship with the project and that the bundled model never saw: of `texts` beside the
// model's folder, else of the installation or the source tree. Throws InputError when there is
// none.
std::vector<std::string> default_calibration_texts(const std::string& model_dir);

// The beginnings of all files, equally long as far as they reach, `tokens` in all. Without a
// tokenizer the files hold token ids, separated by white space or commas, in brackets or not.
// Throws InputError naming file and place.
std::vector<int32_t> read_calibration_texts(const std::vector<std::string>& paths,
                                            const text::TextCoder* tokenizer, int64_t tokens);

}  // namespace fasa
