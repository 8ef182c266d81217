// Problems in the form of MATH500 or AIME, one JSON object a line.
#include "runtime/eval/tasks/math_task.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(math_lines) {
  static const FuzzFolder folder;
  static const auto tokenizer =
      fasa::text::Tokenizer::load(std::string(FASA_SOURCE_DIR) + "/models/needle-3m");
  const fasa::MathTask task(folder.write("math.jsonl", data, size), tokenizer, {});
  for (size_t i = 0; i < task.examples(); ++i) {
    task.id(i);
    task.prompt(i);
    task.record(i, 10, nlohmann::json::array({"\\boxed{1}"}));
  }
}
