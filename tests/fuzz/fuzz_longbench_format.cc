// dataset2prompt.json and dataset2maxlen.json: each input is used first as one, then as the other.
#include "runtime/eval/tasks/longbench_task.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(longbench_format) {
  static const FuzzFolder folder;
  const std::string_view text = text_of(data, size);
  const std::string prompts = R"({"qasper": "{context} {input}"})";
  const std::string lengths = R"({"qasper": 12})";
  folder.write("dataset2prompt.json", data, size);
  folder.write("dataset2maxlen.json", lengths);
  try {
    fasa::LongBenchFormat::load(folder.path(), "qasper");
  } catch (const fasa::InputError&) {
  }
  folder.write("dataset2prompt.json", prompts);
  folder.write("dataset2maxlen.json", std::string(text));
  const auto format = fasa::LongBenchFormat::load(folder.path(), "qasper");
  if (format.answer_tokens <= 0) std::abort();
}
