#include "tools/demo_measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/catalog/gpu_catalog.h"
#include "runtime/eval/answer_run.h"
#include "runtime/eval/decode_run.h"
#include "runtime/eval/shared_prompt.h"
#include "runtime/eval/step_logits.h"
#include "runtime/io/input_file.h"
#include "runtime/io/shipped_files.h"
#include "runtime/llm/model.h"
#include "runtime/llm/model_tokenizer.h"
#include "runtime/llm/open_model_device.h"
#include "runtime/llm/random_context.h"
#include "runtime/synthetic/filled_runtime.h"
#include "runtime/synthetic/synthetic_decode.h"
#include "tools/slice_choice.h"

namespace fasa {
namespace {

constexpr int64_t kDocumentTokens = 6700;
constexpr int64_t kComparedTokens = 640;
constexpr int64_t kAnswerTokens = 6;
constexpr const char* kCode = "48213";

Config config_of(const char* preset, const char* device) {
  Config config;
  config.preset = preset;
  config.apply_preset();
  config.device.name = device;
  return config;
}

std::string shipped_text(const std::string& name) {
  const auto path = shipped_file("texts/" + name);
  if (!path)
    throw InputError(fmt::format("models/texts/{} was not found beside the program", name));
  return read_file(path->string(), kPromptFile);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// fasa-m with hot rows for one and a half sets, and none of those that it takes while memory is
// free.
Config without_loans() {
  Config config = config_of("fasa-m", "emulated");
  config.placement.hot_rows = static_cast<int>(2 * kDefaultFacTokens.min_tokens);
  return config;
}

// A model on one device, and the two runtimes that take turns on it.
class Pair {
 public:
  Pair(const std::string& path, const char* device, int64_t context, const Config& tiered)
      : config_(ModelConfig::load(path)),
        device_(open_model_device(tiered.device_options(), config_)),
        model_(Model::load(path, *device_, std::nullopt)),
        tiered_(runtime(path, tiered, context)),
        full_(runtime(path, config_of("full", device), context)) {}

  Model& model() { return model_; }
  Runtime& tiered() { return *tiered_; }
  Runtime& full() { return *full_; }

 private:
  std::unique_ptr<Runtime> runtime(const std::string& path, const Config& config, int64_t context) {
    return std::make_unique<Runtime>(*device_, config, model_.config().geometry(),
                                     config_.row_dtype(),
                                     choose_slices(model_, config, path, {}).dims, context);
  }

  ModelConfig config_;
  std::unique_ptr<Device> device_;
  Model model_;
  std::unique_ptr<Runtime> tiered_;
  std::unique_ptr<Runtime> full_;
};

// The tokens after `begin` that the model thinks most likely.
std::string greedy(const DecodeRun& behind, std::span<const int32_t> begin, int64_t tokens,
                   const text::TextCoder& tokenizer) {
  DecodeRun run(behind, behind.length());
  std::span<const float> logits;
  for (const int32_t id : begin) logits = run.step(id);
  std::vector<int32_t> answer;
  for (int64_t i = 0; i < tokens; ++i) {
    answer.push_back(best_token(logits));
    if (i + 1 < tokens) logits = run.step(answer.back());
  }
  return tokenizer.decode(answer);
}

struct Document {
  std::vector<int32_t> ids;        // with the added sentence
  std::vector<int32_t> next;       // the text's tokens after it
  std::vector<int32_t> beginning;  // of the sentence, as it is asked for
};

// The added sentence comes behind the sentence that ends next to 40 % of the text.
Document make_document(const text::TextCoder& tokenizer) {
  std::string text = shipped_text("state-of-the-union-1996.txt");
  const size_t at = text.find(". ", text.size() * 2 / 5);
  text.insert(at + 2, std::string(kAddedSentence) + " ");
  const std::vector<int32_t> ids = encode_prompt(tokenizer, text);
  if (static_cast<int64_t>(ids.size()) < kDocumentTokens + kComparedTokens + 1) {
    throw InputError("the bundled text is too short for this model's tokenizer");
  }
  const auto cut = ids.begin() + kDocumentTokens;
  return {{ids.begin(), cut},
          {cut, cut + kComparedTokens + 1},
          encode_behind(tokenizer, std::string("\n\n") + kAddedBeginning)};
}

class DocumentMeasure {
 public:
  DocumentMeasure(const std::string& path, const DemoProgress& progress)
      : tokenizer_(require_tokenizer(path)),
        document_(make_document(tokenizer_)),
        pair_(path, "emulated", kDocumentTokens + kComparedTokens + 32, without_loans()),
        progress_(progress) {}

  DocumentResult run() {
    result_.document_tokens = static_cast<int64_t>(document_.ids.size());
    result_.cache_tokens = result_.document_tokens + kComparedTokens;
    result_.full = run_one(pair_.full(), nullptr);
    result_.tiered = run_one(pair_.tiered(), &full_logits_);
    result_.compared = kComparedTokens;
    prompt_.forget();
    return result_;
  }

 private:
  DocumentRun run_one(Runtime& runtime, const StepLogits* against) {
    DecodeRun run(pair_.model(), runtime, result_.cache_tokens, &prompt_);
    prefill(run);
    DocumentRun one;
    one.answer = greedy(run, document_.beginning, kAnswerTokens, tokenizer_);
    one.right = one.answer.find(kCode) != std::string::npos;
    for (int64_t i = 0; i < kComparedTokens; ++i) {
      compare(run.step(document_.next[static_cast<size_t>(i)]), static_cast<size_t>(i), against);
      progress_(result_.document_tokens + (against == nullptr ? 0 : kComparedTokens) + i, total());
    }
    one.memory = runtime.memory();
    return one;
  }

  // The second run copies what the first has computed.
  void prefill(DecodeRun& run) {
    progress_(0, total());
    run.prefill(document_.ids);
  }

  void compare(std::span<const float> logits, size_t step, const StepLogits* against) {
    if (against == nullptr) {
      full_logits_.add(logits);
      return;
    }
    const std::span<const float> full = against->at(step);
    result_.same_token += best_token(full) == best_token(logits) ? 1 : 0;
    result_.kl += kl_divergence(full, logits) / static_cast<double>(kComparedTokens);
  }

  int64_t total() const { return result_.document_tokens + 2 * kComparedTokens; }

  text::Tokenizer tokenizer_;
  Document document_;
  Pair pair_;
  const DemoProgress& progress_;
  SharedPrompt prompt_;
  StepLogits full_logits_;
  DocumentResult result_;
};

// The mean of decode steps behind a random context.
double step_seconds(Model& model, Runtime& runtime, int64_t tokens) {
  constexpr int kWarmup = 4;
  constexpr int kSteps = 32;
  DecodeRun run(model, runtime, tokens + kWarmup + kSteps);
  append_random_context(model, runtime, run.id(), tokens);
  int32_t id = 1;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kWarmup + kSteps; ++i) {
    if (i == kWarmup) start = std::chrono::steady_clock::now();
    id = best_token(run.step(id));
  }
  return seconds_since(start) / kSteps;
}

}  // namespace

const char* const kAddedSentence = "The code of the vault in Lisbon is 48213.";
const char* const kAddedBeginning = "The code of the vault in Lisbon is";

DocumentResult measure_document(const std::string& model, const DemoProgress& progress) {
  return DocumentMeasure(model, progress).run();
}

SpeedResult measure_model_speed(const std::string& model, int64_t tokens) {
  Pair pair(model, "cpu", tokens + 64, config_of("fasa-c", "cpu"));
  return {tokens, step_seconds(pair.model(), pair.tiered(), tokens),
          step_seconds(pair.model(), pair.full(), tokens)};
}

SpeedResult measure_attention_speed(int64_t tokens) {
  constexpr int kWarmup = 2;
  constexpr int kSteps = 8;
  // The first layer attends to a set, the second to all tokens.
  const Geometry geometry = llama_8b(2);
  const int layers = find_model_shape("Llama-3.1-8B").geometry.layers;
  Config config = config_of("fasa-c", "cpu");
  config.selection.dense_layers = {1};
  FilledRuntime filled(config.device_options(), config, geometry, all_slice_dims(geometry), tokens);
  const auto heads = static_cast<size_t>(geometry.query_heads * geometry.key_dim);
  std::vector<float> out(heads);
  double seconds[2] = {0, 0};
  for (int step = 0; step < kWarmup + kSteps; ++step) {
    const std::vector<uint16_t> q = random_bf16(heads, static_cast<uint64_t>(step) + 1);
    const StepSequence part{filled.sequence(), 1, StepMode::kDecode};
    filled.runtime().begin_step({&part, 1});
    for (int layer = 0; layer < 2; ++layer) {
      const auto kv =
          ConstTensorView::dense(q.data(), DType::kBF16, 1, geometry.kv_heads, geometry.key_dim);
      const auto start = std::chrono::steady_clock::now();
      filled.runtime().append(layer, kv, kv, filled.stream());
      filled.runtime().attend(
          layer,
          ConstTensorView::dense(q.data(), DType::kBF16, 1, geometry.query_heads, geometry.key_dim),
          TensorView::dense(out.data(), DType::kF32, 1, geometry.query_heads, geometry.key_dim),
          nullptr, filled.stream());
      if (step >= kWarmup) seconds[layer] += seconds_since(start) / kSteps;
    }
    filled.runtime().end_step();
  }
  return {tokens, seconds[0] * layers, seconds[1] * layers};
}

SpeedResult measure_emulated_step(const std::string& gpu, int64_t tokens) {
  constexpr int kWarmup = 24;
  constexpr int kSteps = 8;
  constexpr int kWeightBits = 4;
  const ModelShape shape = find_model_shape("Llama-3.1-8B");
  const Gpu& emulated = find_gpu(gpu);
  SyntheticOptions options;
  options.geometry = shape.geometry;
  options.tokens = tokens;
  options.memory_bandwidth = emulated.memory_bandwidth;
  options.weights = weight_load(shape, kWeightBits);
  const auto seconds = [&](const char* preset) {
    options.config = config_of(preset, "emulated");
    options.config.link.bandwidth = emulated.link_bandwidth();
    const SelectionTrace trace = SelectionTrace::load(default_selection_trace());
    return SyntheticDecode(options, trace).run(kWarmup, kSteps).tpot_seconds;
  };
  return {tokens, seconds("fasa-m"), seconds("full")};
}

FactsResult measure_facts(const DemoProgress& progress) {
  const auto folder = shipped_file("needle-3m");
  if (!folder) throw InputError("models/needle-3m was not found beside the program");
  const std::string path = folder->string();
  const text::Tokenizer tokenizer = require_tokenizer(path);
  constexpr int64_t kContext = 8192;
  constexpr int64_t kDigits = 5;
  Config tiered = config_of("fasa-m", "emulated");
  tiered.selection.fac_tokens = {{.tokens = 128, .share = 0}};
  tiered.selection.low_bit_tokens = TokenCount{.tokens = 0, .share = 0};
  Pair pair(path, "emulated", kContext, tiered);
  FactsResult result;
  int64_t texts = 0;
  for (const char* name : {"facts-1k.json", "facts-4k.json", "facts-8k.json"}) {
    progress(texts++, 3);
    const auto json = nlohmann::json::parse(shipped_text(name));
    const std::vector<int32_t> ids = tokenizer.encode(json.at("text").get<std::string>());
    SharedPrompt prompt;
    for (Runtime* const runtime : {&pair.full(), &pair.tiered()}) {
      DecodeRun run(pair.model(), *runtime, static_cast<int64_t>(ids.size()), &prompt);
      run.prefill(ids);
      for (const auto& question : json.at("questions")) {
        const auto suffix = tokenizer.encode(question.at("prompt_suffix").get<std::string>());
        const std::string answer = greedy(run, suffix, kDigits, tokenizer);
        const bool right = answer == question.at("answer").get<std::string>();
        (runtime == &pair.tiered() ? result.tiered_right : result.full_right) += right ? 1 : 0;
        result.asked += runtime == &pair.tiered() ? 1 : 0;
      }
    }
    prompt.forget();
  }
  return result;
}

}  // namespace fasa
