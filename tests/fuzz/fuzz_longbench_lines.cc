// LongBench examples, one JSON object a line, with prompts in the form in which the authors publish
// them.
#include "runtime/eval/tasks/longbench_task.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(longbench_lines) {
  static const FuzzFolder folder;
  static const auto tokenizer =
      fasa::text::Tokenizer::load(std::string(FASA_SOURCE_DIR) + "/models/needle-3m");
  static const bool made = [] {
    folder.write("dataset2prompt.json", R"({"qasper": "Read: {context}\nAsked: {input}\nSaid:"})");
    folder.write("dataset2maxlen.json", R"({"qasper": 12})");
    return true;
  }();
  if (!made) return;
  folder.write("qasper.jsonl", data, size);
  const fasa::LongBenchTask task(folder.path(), "qasper", tokenizer, {.context = 200});
  for (size_t i = 0; i < task.examples(); ++i) {
    task.id(i);
    const fasa::AskedText asked = task.make(i);
    if (asked.ids.size() + asked.questions.front().ids.size() > 200) std::abort();
    task.record(i, asked, {{{"answer", "an answer"}}});
  }
}
