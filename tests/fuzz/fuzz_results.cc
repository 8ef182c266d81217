// Result files that an evaluation resumes from, and the scores computed from their records.
#include "runtime/eval/result_log.h"
#include "runtime/eval/tasks/eval_task.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(results) {
  static const FuzzFolder folder;
  const std::string path = folder.write("results.jsonl", data, size);
  fasa::ResultFile file;
  try {
    file = fasa::read_results(path);
  } catch (const fasa::InputError&) {
    fasa::ResultLog(path, nlohmann::json::object(), fasa::ResultLog::Begin::kResume);
    return;
  }
  if (file.whole_bytes > size) std::abort();
  for (const fasa::Metric metric :
       {fasa::Metric::kPerplexity, fasa::Metric::kAccuracy, fasa::Metric::kScore}) {
    try {
      fasa::summarize(metric, file.records);
    } catch (const fasa::InputError&) {
    }
  }
  fasa::ResultLog log(path, file.setup, fasa::ResultLog::Begin::kResume);
  log.add({{"id", "one more"}, {"score", 1}});
}
