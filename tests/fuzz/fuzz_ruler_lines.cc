// Samples in the form of RULER's files, one JSON object a line.
#include "runtime/eval/tasks/ruler_task.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(ruler_lines) {
  static const FuzzFolder folder;
  static const auto tokenizer =
      fasa::text::Tokenizer::load(std::string(FASA_SOURCE_DIR) + "/models/needle-3m");
  const fasa::RulerTask task(folder.write("vt.jsonl", data, size), "vt", tokenizer,
                             {.context = 300}, 20);
  for (size_t i = 0; i < task.examples(); ++i) {
    const fasa::AskedText asked = task.make(i);
    const fasa::Question& question = asked.questions.front();
    if (asked.ids.empty() || asked.ids.size() + question.ids.size() > 300) std::abort();
    if (task.score(question, question.answer) != 1) std::abort();
  }
}
