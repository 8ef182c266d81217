// What an evaluation consists of: numbered examples, each run by itself.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/api/sequences/runtime.h"
#include "runtime/eval/interval.h"
#include "runtime/llm/model.h"

namespace fasa {

// What a task's results add up to, and the members of a record that it is made from:
//   perplexity  exp(sum "nll" / sum "tokens"), nll in nats
//   accuracy    sum "right" / sum "asked"
//   score       mean of "score", 0 to 100
enum class Metric : uint8_t { kPerplexity, kAccuracy, kScore };
std::string_view metric_name(Metric metric);  // "perplexity", "accuracy", "score"

class SharedPrompt;  // runtime/eval/shared_prompt.h
class StepLogits;    // runtime/eval/step_logits.h

// What an example runs on.
struct EvalTarget {
  Model& model;
  Runtime& runtime;                // holds the selection
  SharedPrompt* prompt = nullptr;  // of runtimes that take the same example one after the other
  StepLogits* keep = nullptr;      // gets the logits of the scored steps
  const StepLogits* against = nullptr;  // those of the same example to compare with
};

class EvalTask {
 public:
  virtual ~EvalTask() = default;
  virtual std::string name() const = 0;  // the head of its column in a table: "needle 4096"
  virtual Metric metric() const = 0;
  virtual nlohmann::json setup() const = 0;  // what its examples depend on beside the model
  virtual size_t examples() const = 0;
  virtual std::string id(size_t example) const = 0;  // differs for each
  virtual int64_t longest() const = 0;               // tokens of a sequence, for the runtime
  // Steps of an example that can be compared with another method's; 0 = none.
  virtual int64_t compared_steps() const { return 0; }
  // The record without its id. All sequences of the runtime are freed again, but for what the
  // shared prompt keeps.
  virtual nlohmann::json run(size_t example, const EvalTarget& target) = 0;
};

// Of records as above. Those without the metric's members (not scored yet) don't count.
struct Summary {
  Metric metric;
  double value = 0;
  Interval interval;     // 95 %
  int64_t examples = 0;  // records
  int64_t counted = 0;   // tokens, questions, or records with a score
};
Summary summarize(Metric metric, std::span<const nlohmann::json> records);

}  // namespace fasa
