// Compares two formats of one model's weights: how far the logits differ, the cost in perplexity,
// and where greedy answers diverge.
//
//   compare_weights MODEL ORACLE [--text FILE] [--windows N] [--tokens N] [--continue N]
//                   [--dtype f32|bf16] [--decode] [flags of [weights], for MODEL]
//
// MODEL's weights are in the format that the flags say, ORACLE's as in its files; both may be the
// same folder. Attention is full. Windows are prefilled; with --decode, MODEL is fed token by
// token, which multiplies packed weights without unpacking. --continue: greedy tokens after the
// first half of the first window. A divergence counts if ORACLE's two best logits there are at
// least 0.5 apart.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/config_flags.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "runtime/fasa.hpp"
#include "runtime/io/input_file.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "tests/support/source_path.h"

namespace fasa::bench {
namespace {

constexpr float kClear = 0.5f;  // between two logits

struct Options {
  std::string model;
  std::string oracle;
  std::string text = source_path("models/texts/revelation.txt");
  std::string dtype = "f32";
  int windows = 4;
  int tokens = 256;
  int continued = 0;
  bool decode = false;
  Config config;
};

// One of the two models, with a sequence of its own.
class Side {
 public:
  Side(const std::string& path, const Options& options, const WeightOptions& weights)
      : device_(open_device(options.config.device_options())),
        model_(Model::load(path, *device_, parse_dtype(options.dtype), weights)) {}

  const Model& model() const { return model_; }

  void begin() {
    runtime_.reset();
    Config config;
    config.preset = "full";
    config.apply_preset();
    const Geometry geometry = model_.config().geometry();
    runtime_ = std::make_unique<Runtime>(*device_, config, geometry, DType::kF32,
                                         all_slice_dims(geometry));
    sequence_ = runtime_->create();
  }
  // A new sequence of `tokens`; logits of all of them [tokens, vocab].
  std::vector<float> window(std::span<const int32_t> tokens) {
    begin();
    return step(tokens, StepMode::kPrefill);
  }
  std::vector<float> next(int32_t token) { return step({&token, 1}, StepMode::kDecode); }

 private:
  std::vector<float> step(std::span<const int32_t> tokens, StepMode mode) {
    const StepSequence one[] = {{sequence_, static_cast<int>(tokens.size()), mode}};
    const auto logits = model_.step(*runtime_, tokens, one, {.all_logits = true});
    return {logits.begin(), logits.end()};
  }

  std::unique_ptr<Device> device_;
  Model model_;
  std::unique_ptr<Runtime> runtime_;
  SequenceId sequence_{};
};

double log_sum(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

size_t best(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float margin(std::span<const float> logits) {
  const size_t first = best(logits);
  float second = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i != first) second = std::max(second, logits[i]);
  }
  return logits[first] - second;
}

struct Sums {
  double worst = 0, largest = 0;  // of logits
  double nll = 0, oracle_nll = 0, kl = 0;
  int64_t predicted = 0, same = 0;

  void add_logits(std::span<const float> given, std::span<const float> wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double difference = std::abs(double{given[i]} - double{wanted[i]});
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      largest = std::max(largest, std::abs(double{wanted[i]}));
    }
  }
  void add_prediction(std::span<const float> given, std::span<const float> wanted, int32_t token) {
    const double sum = log_sum(given);
    const double oracle_sum = log_sum(wanted);
    nll += sum - given[static_cast<size_t>(token)];
    oracle_nll += oracle_sum - wanted[static_cast<size_t>(token)];
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double p = wanted[i] - oracle_sum;
      kl += std::exp(p) * (p - (given[i] - sum));
    }
    same += best(given) == best(wanted) ? 1 : 0;
    ++predicted;
  }
};

void compare_window(Side* side, Side* oracle, std::span<const int32_t> tokens, bool decode,
                    Sums* sums) {
  const std::vector<float> wanted = oracle->window(tokens);
  std::vector<float> given;
  if (decode) {
    side->begin();
  } else {
    given = side->window(tokens);
  }
  const auto vocab = static_cast<size_t>(oracle->model().config().vocab_size);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (decode) given = side->next(tokens[i]);
    const auto mine = std::span(given).subspan(decode ? 0 : i * vocab, vocab);
    const auto its = std::span(wanted).subspan(i * vocab, vocab);
    sums->add_logits(mine, its);
    if (i + 1 < tokens.size()) sums->add_prediction(mine, its, tokens[i + 1]);
  }
}

// Number of equal greedy tokens, and the oracle's margin at the first difference.
std::pair<int, float> continue_both(Side* side, Side* oracle, std::span<const int32_t> prompt,
                                    int count) {
  const auto vocab = static_cast<size_t>(oracle->model().config().vocab_size);
  std::vector<float> given = side->window(prompt);
  std::vector<float> wanted = oracle->window(prompt);
  for (int i = 0; i < count; ++i) {
    const std::span<const float> mine = std::span(given).last(vocab);
    const std::span<const float> its = std::span(wanted).last(vocab);
    if (best(mine) != best(its)) return {i, margin(its)};
    const auto token = static_cast<int32_t>(best(its));
    given = side->next(token);
    wanted = oracle->next(token);
  }
  return {count, INFINITY};
}

// Bytes of the layers' matrices, relative to two bytes per weight.
double share_of_bf16(const Model& model) {
  const ModelConfig& config = model.config();
  const int64_t width = config.hidden;
  const int64_t embeddings = width * config.vocab_size * (config.tie_embeddings ? 1 : 2);
  const int64_t norms = (2 * config.layers + 1) * width;
  const auto linears = static_cast<double>(config.parameters() - embeddings - norms);
  return static_cast<double>(model.weight_bytes().layers) / (2 * linears);
}

int run(const Options& options) {
  Side side(options.model, options, options.config.weights);
  Side oracle(options.oracle, options, {});
  const auto tokenizer = require_tokenizer(options.oracle);
  const std::vector<int32_t> ids = tokenizer.encode(read_file(options.text));
  const auto window = static_cast<size_t>(options.tokens);
  const size_t windows = std::min(static_cast<size_t>(options.windows), ids.size() / window);
  if (windows == 0) throw UsageError("the text is shorter than a window");
  Sums sums;
  const size_t apart = ids.size() / windows;
  const auto part = [&](size_t i) { return std::span(ids).subspan(i * apart, window); };
  for (size_t i = 0; i < windows; ++i) {
    compare_window(&side, &oracle, part(i), options.decode, &sums);
  }
  const auto predicted = static_cast<double>(sums.predicted);
  nlohmann::json json = {{"tokens", windows * window},
                         {"logits_apart", sums.worst / sums.largest},
                         {"perplexity", std::exp(sums.nll / predicted)},
                         {"oracle_perplexity", std::exp(sums.oracle_nll / predicted)},
                         {"kl", sums.kl / predicted},
                         {"same_best", static_cast<double>(sums.same) / predicted},
                         {"linears_of_bf16", share_of_bf16(side.model())},
                         {"linear_bytes", side.model().weight_bytes().layers},
                         {"head_bytes", side.model().weight_bytes().head}};
  if (options.continued > 0) {
    const auto [equal, clear] =
        continue_both(&side, &oracle, part(0).first(window / 2), options.continued);
    json["greedy_equal"] = equal;
    json["greedy_asked"] = options.continued;
    if (equal < options.continued) json["margin_where_they_part"] = clear;
    json["parted"] = equal < options.continued && clear >= kClear;
  }
  fmt::print("{}\n", json.dump(1));
  return 0;
}

int main_checked(int argc, char** argv) {
  CLI::App app;
  Options options;
  app.add_option("MODEL", options.model)->required();
  app.add_option("ORACLE", options.oracle)->required();
  app.add_option("--text", options.text);
  app.add_option("--windows", options.windows)->check(CLI::Range(1, 10000));
  app.add_option("--tokens", options.tokens)->check(CLI::Range(2, 8192));
  app.add_option("--continue", options.continued);
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_flag("--decode", options.decode);
  const ConfigFlags flags(app);
  CLI11_PARSE(app, argc, argv);
  options.config = flags.config();
  options.config.device.name = "cpu";
  return run(options);
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  return fasa::bench::run_program("compare_weights", fasa::bench::main_checked, argc, argv);
}
