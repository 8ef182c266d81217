#include "runtime/eval/eval_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/capture/calibration_data.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa {

nlohmann::json EvalText::describe() const {
  return {{"file", std::filesystem::path(path).filename().string()},
          {"bytes", bytes.size()},
          {"hash", fmt::format("fnv1a:{:016x}", fnv1a(bytes))}};
}

std::string default_eval_text(const std::string& model_dir) {
  const auto paths = default_calibration_texts(model_dir);
  const auto found = std::find_if(paths.begin(), paths.end(), [](const std::string& path) {
    return std::filesystem::path(path).filename() == "revelation.txt";
  });
  return found == paths.end() ? paths.front() : *found;
}

std::vector<EvalText> read_eval_texts(const std::vector<std::string>& paths,
                                      const text::TextCoder* tokenizer) {
  if (tokenizer == nullptr) {
    throw UsageError("this model has no tokenizer; give a model that has one");
  }
  std::vector<EvalText> texts;
  for (const std::string& path : paths) {
    EvalText text{path, read_file(path, kPromptFile), {}};
    text.ids = tokenizer->encode(text.bytes);
    if (text.ids.empty())
      throw InputError(
          fmt::format("{}: the file is empty; give a text of at least one token", path));
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace fasa
