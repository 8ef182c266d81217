// The texts that an evaluation reads.
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
  nlohmann::json describe() const;  // file name, bytes, hash: what results depend on
};

// The text that is evaluated where none is given: one that the bundled model never saw and that
// calibration by default does not lean on alone. Throws InputError when there is none.
std::string default_eval_text(const std::string& model_dir);

// Throws InputError (unreadable, empty), UsageError (a model without a tokenizer).
std::vector<EvalText> read_eval_texts(const std::vector<std::string>& paths,
                                      const text::TextCoder* tokenizer);

}  // namespace fasa
