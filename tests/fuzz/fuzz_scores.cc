// The file of scores beside a result file.
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/report/eval_scores.h"

FASA_FUZZ_TARGET(scores) {
  static const FuzzFolder folder;
  folder.write("results.scores.json", data, size);
  std::vector<nlohmann::json> records = {{{"id", "a"}}, {{"id", "b"}, {"score", 1}}};
  fasa::add_scores(folder.file("results.jsonl"), records);
}
