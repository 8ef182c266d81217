// An evaluation task: numbered, independent examples.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/api/sequences/runtime.h"
#include "runtime/eval/interval.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

// The summary of a task's results, and the record members that it is computed from:
//   perplexity  exp(sum "nll" / sum "tokens"), nll in nats
//   accuracy    sum "right" / sum "asked"; an answer may be right in part
//   score       mean of "score", 0 to 100
enum class Metric : uint8_t { kPerplexity, kAccuracy, kScore };
std::string_view metric_name(Metric metric);  // "perplexity", "accuracy", "score"

class SharedPrompt;  // runtime/eval/shared_prompt.h
class StepLogits;    // runtime/eval/step_logits.h

// The environment in which an example runs.
struct EvalTarget {
  Model& model;
  Runtime& runtime;                     // holds the selection
  SharedPrompt* prompt = nullptr;       // shared by runtimes that run the same example in turn
  StepLogits* keep = nullptr;           // receives the logits of the scored steps
  const StepLogits* against = nullptr;  // logits of the same example to compare with
};

class EvalTask {
 public:
  virtual ~EvalTask() = default;
  virtual std::string name() const = 0;  // the title of its column in a table: "needle 4096"
  virtual Metric metric() const = 0;
  virtual nlohmann::json setup() const = 0;  // everything but the model that its examples depend on
  virtual size_t examples() const = 0;
  virtual std::string id(size_t example) const = 0;  // unique
  virtual int64_t longest() const = 0;               // tokens of a sequence, for the runtime
  // About how many of an example's steps can be compared with another method's; 0 = none.
  virtual int64_t compared_steps() const { return 0; }
  // Returns the record without its id. Frees all sequences of the runtime, except the shared
  // prompt's.
  virtual nlohmann::json run(size_t example, const EvalTarget& target) = 0;
};

// Summary of records as above. Skips records that lack the metric's fields: they are not scored
// yet.
struct Summary {
  Metric metric;
  double value = 0;
  Interval interval;     // 95 %
  int64_t examples = 0;  // records
  int64_t counted = 0;   // tokens, questions, or records with a score
};
Summary summarize(Metric metric, std::span<const nlohmann::json> records);

}  // namespace fasa
