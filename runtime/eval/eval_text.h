// The texts of an evaluation.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa {

struct EvalText {
  std::string path;
  std::string bytes;
  std::vector<int32_t> ids;
  nlohmann::json describe() const;  // file name, bytes, hash: identifies the text in results
};

// The default text: the bundled model was not trained on it, and default calibration uses more than
// it. Throws InputError if it is missing.
std::string default_eval_text(const std::string& model_dir);

// Throws InputError (unreadable, empty), UsageError (a model without a tokenizer).
std::vector<EvalText> read_eval_texts(const std::vector<std::string>& paths,
                                      const text::TextCoder* tokenizer);

}  // namespace fasa
