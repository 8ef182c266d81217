// fasa generate: a model continues a prompt, with its KV cache in tiers.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "runtime/api/kv_cost.h"
#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/config/model_shape.h"
#include "runtime/llm/generation/chat_session.h"
#include "runtime/llm/generation/generator.h"
#include "runtime/llm/generation/model_templates.h"
#include "runtime/llm/generation/random_context.h"
#include "runtime/trace/trace_file.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/fit_flag.h"
#include "tools/flags/help_text.h"
#include "tools/flags/load_model.h"
#include "tools/flags/model_dtype.h"
#include "tools/flags/prefill_chunk_flag.h"
#include "tools/flags/prompt.h"
#include "tools/flags/sampling_flags.h"
#include "tools/flags/slice_choice.h"
#include "tools/report/generate_report.h"
#include "tools/terminal/clock.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

// Physical memory that all host rows share if they exceed the machine's memory.
constexpr uint64_t kSharedRowBytes = uint64_t{1} << 30;

// A model folder; or, with random weights, the name of a geometry or a folder with a config.json.
struct ModelOptions {
  std::string dir;
  std::string geometry;

  void validate() const {
    if (dir.empty() != geometry.empty()) return;
    throw UsageError(dir.empty() ? "generate needs --model DIR or --geometry NAME"
                                 : "--model and --geometry exclude each other; give one of them");
  }
  const std::string& name() const { return dir.empty() ? geometry : dir; }
  ModelConfig config() const {
    if (!dir.empty()) return ModelConfig::load(dir);
    if (std::filesystem::exists(geometry)) return ModelConfig::load(geometry);
    const ModelShape& shape = find_model_shape(geometry);
    if (shape.geometry.linear.layers == 0) return llama_config(shape);
    throw UsageError(fmt::format(
        "--geometry {}: it has layers with linear attention, which a llama model lacks; give the "
        "folder of its config.json",
        shape.name));
  }
  std::unique_ptr<text::Tokenizer> tokenizer(const PromptSource& prompt) const {
    return dir.empty() ? nullptr : load_tokenizer(dir, prompt);
  }
  Model load(const ModelConfig& config, Device& device, std::optional<DType> dtype,
             const WeightOptions& weights, int64_t context) const {
    constexpr uint64_t kSeed = 1;
    return dir.empty() ? Model::random(config, device, dtype, kSeed, weights)
                       : load_model(dir, device, dtype, weights, {context, "a prompt and answer"});
  }
};

void add_model_flags(CLI::App& command, ModelOptions& model, PromptSource& prompt,
                     int64_t& random_context) {
  add_model_option(command, model.dir);
  add_option(command, "--geometry", model.geometry, "NAME|DIR",
             "For measuring: random weights in a llama model of this geometry (names: fasa "
             "plan --list), or in the model of a folder's config.json");
  add_option(command, "--random-context", random_context, "N",
             "For measuring: N tokens of random keys and values before the prompt, without a "
             "prefill; the prompt is decoded, and defaults to one random token")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  add_option(command, "--random-prompt", prompt.random_tokens, "N",
             "For measuring: a prompt of N random token ids");
  add_prompt_options(command, prompt);
  add_pre_option(command, prompt.pre);
}

class GenerateCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("generate", "Generate text with a model");
    add_model_flags(*command_, model_, prompt_, options_.random_context);
    add_chat_flags();
    sampling_.add_to(*command_);
    add_prefill_chunk(*command_, options_.prefill_chunk);
    command_->add_flag("--allow-long", options_.allow_long,
                       "Allow more tokens than the model has positions, with a warning");
    add_dtype_option(*command_, dtype_);
    command_->add_flag("--stats", stats_, "Print a table of times, memory and fetches");
    command_->add_flag("--json", json_, "Print one JSON object instead of the text");
    fit_.add_to(*command_);
    flags_.add_to(*command_);
    return command_;
  }

  int run() override;

 private:
  GenerateReport generate_report(Model& model, const text::Tokenizer* tokenizer,
                                 const std::vector<int32_t>& prompt, const Config& config);
  void print(const GenerateReport& report) const;
  void add_chat_flags();
  void prepare_random_context();
  DeviceOptions device_options(const Config& config, const ModelConfig& model) const;
  void fit_to(const Device& device, const ModelConfig& model, std::optional<DType> dtype,
              int64_t prompt_tokens, Config* config);
  // The prompt's token ids, with --chat through the chat template.
  std::vector<int32_t> prompt_ids(const text::Tokenizer* tokenizer, int vocab_size) const;

  CLI::App* command_ = nullptr;
  ConfigFlags flags_;
  FitFlag fit_;
  ModelOptions model_;
  PromptSource prompt_;
  std::string dtype_ = "auto";
  SamplingFlags sampling_{128};
  GenerateOptions options_;
  bool chat_ = false;
  std::string system_;
  std::string now_;
  bool stats_ = false;
  bool json_ = false;
};

void GenerateCommand::add_chat_flags() {
  command_->add_flag("--chat", chat_,
                     "Treat the prompt as a user's message and apply the chat template");
  add_option(*command_, "--system", system_, "TEXT",
             "With --chat: a system message before the prompt");
  add_option(*command_, "--now", now_, "DATE",
             "With --chat: time for chat templates; default: SOURCE_DATE_EPOCH, else now");
}

std::vector<int32_t> GenerateCommand::prompt_ids(const text::Tokenizer* tokenizer,
                                                 int vocab_size) const {
  if (!chat_) {
    if (!system_.empty()) throw UsageError("--system needs --chat");
    return read_prompt(prompt_, tokenizer, vocab_size);
  }
  if (prompt_.ids_file || prompt_.random_tokens || !(prompt_.text || prompt_.file)) {
    throw UsageError("--chat needs a text: give --prompt TEXT or --prompt-file FILE");
  }
  if (tokenizer == nullptr) throw UsageError("--chat needs a model with a tokenizer");
  std::vector<text::ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.push_back({"user", read_prompt_text(prompt_)});
  return ChatSession::prompt_ids(*tokenizer, require_templates(model_.dir), messages,
                                 shown_time(now_));
}

GenerateReport GenerateCommand::generate_report(Model& model, const text::Tokenizer* tokenizer,
                                                const std::vector<int32_t>& prompt,
                                                const Config& config) {
  Device& device = model.device();
  const Geometry geometry = model.config().geometry();
  const SliceChoice slices = choose_slices(model, config, model_.dir, prompt);
  GenerateReport report;
  report.row_dtype = config.placement.row_dtype.value_or(model.config().row_dtype());
  const int64_t context =
      options_.random_context + static_cast<int64_t>(prompt.size()) + options_.max_tokens;
  Runtime runtime(device, config, geometry, report.row_dtype, slices.dims, context);

  Progress progress("reading the prompt");
  GenerateOptions options = options_;
  options.on_prefill = [&](int64_t done, int64_t total) { progress.update(done, total); };
  const auto print_text = [&](std::string_view text) {
    progress.clear();
    if (json_) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  options.on_token = [&](int32_t, std::string_view text) { print_text(text); };
  options.on_rest = print_text;
  report.result = generate(model, runtime, prompt, options, tokenizer);
  progress.clear();

  report.model = model_.name();
  report.device = device.name();
  report.virtual_clock = device.virtual_clock();
  report.dtype = model.dtype();
  report.weight_bytes = model.weight_bytes().total;
  report.fetch = runtime.metrics();
  report.device_memory = device.memory(MemorySpace::kDevice);
  report.full_kv_bytes =
      full_kv_bytes_per_token(geometry) * static_cast<uint64_t>(report.result.cache_tokens);
  report.map = slices.map;
  report.map_seconds = slices.seconds;
  report.sampling = options.sampling;
  report.config = config;
  return report;
}

void GenerateCommand::fit_to(const Device& device, const ModelConfig& model,
                             std::optional<DType> dtype, int64_t prompt_tokens, Config* config) {
  const int64_t noise = options_.random_context;
  const int64_t before = noise + prompt_tokens;
  const int given = options_.prefill_chunk;
  const int chunk = static_cast<int>(
      std::min<int64_t>(given == kAutomaticChunk ? kMinPrefillChunk : given, prompt_tokens));
  FitFlag::Subject subject{.path = model_.dir,
                           .model = model,
                           .dtype = dtype,
                           .tokens = before + options_.max_tokens,
                           .min_tokens = before + 1,
                           .step_tokens = noise > 0 ? kRandomChunk : chunk,
                           .model_tokens = noise > 0 ? 1 : chunk,
                           .other_bytes = noise > 0 ? random_context_bytes(model, dtype) : 0};
  fit_.apply(device, config, &subject);
  options_.max_tokens = subject.tokens - before;
}

void GenerateCommand::print(const GenerateReport& report) const {
  if (json_) {
    fmt::print("{}\n", to_json(report).dump(2));
    return;
  }
  // When standard output is a file, the text is written byte for byte, without a newline.
  const bool no_tokenizer = report.result.text.empty() && !report.result.tokens.empty();
  if (no_tokenizer) fmt::print("{}", fmt::join(report.result.tokens, " "));
  if (stats_ || no_tokenizer || isatty(STDOUT_FILENO) == 1) fmt::print("\n");
  if (stats_) fmt::print("\n{}", folded(to_table(report)));
}

// A random context may have any length; its default prompt is one token.
void GenerateCommand::prepare_random_context() {
  if (options_.random_context == 0) return;
  options_.allow_long = true;
  const bool given = prompt_.text || prompt_.file || prompt_.ids_file || prompt_.random_tokens;
  if (!given) prompt_.random_tokens = 1;
}

// If the rows of a random context exceed the machine's memory, they share physical memory: the
// measurements are the same.
DeviceOptions GenerateCommand::device_options(const Config& config,
                                              const ModelConfig& model) const {
  DeviceOptions options = config.device_options();
  if (options_.random_context == 0 || config.placement.rows == RowPlacement::kDevice) {
    return options;
  }
  const RowDType rows = config.placement.row_dtype.value_or(model.row_dtype());
  const auto needed = static_cast<double>(full_kv_bytes_per_token(model.geometry())) / 2 *
                      static_cast<double>(rows.bytes() * options_.random_context);
  const uint64_t device = config.memory.device_memory.value_or(0);
  const uint64_t there = available_memory().value_or(UINT64_MAX);
  if (needed + static_cast<double>(device) < 0.9 * static_cast<double>(there)) return options;
  options.host_alias_bytes = kSharedRowBytes;
  return options;
}

int GenerateCommand::run() {
  reject_unknown_arguments(*command_);
  model_.validate();
  prepare_random_context();
  Config config = with_map(flags_.load(), model_.dir);
  require_usable_target();
  const auto dtype = weights_dtype(dtype_);
  const AnswerOptions answer = sampling_.options(model_.dir);
  options_.max_tokens = answer.max_tokens;
  options_.sampling = answer.sampling;
  options_.stop = answer.stop;
  options_.logprobs = answer.logprobs;
  options_.drafts = config.drafts.kind;
  options_.audit_every = config.audit.every;
  const ModelConfig model_config = model_.config();
  config.validate_for(model_config.geometry());
  if (!config.trace.file.empty()) check_writable(config.trace.file);
  const auto tokenizer = model_.tokenizer(prompt_);
  const auto prompt = prompt_ids(tokenizer.get(), model_config.vocab_size);

  const DeviceOptions device_options = this->device_options(config, model_config);
  const auto device = open_model_device(device_options, model_config);
  fit_to(*device, model_config, dtype, static_cast<int64_t>(prompt.size()), &config);
  const int64_t context =
      options_.random_context + static_cast<int64_t>(prompt.size()) + options_.max_tokens;
  Model model = model_.load(model_config, *device, dtype, config.weight_options(), context);
  std::optional<DeviceTrace> trace;
  if (!config.trace.file.empty()) trace.emplace(*device);
  GenerateReport report = generate_report(model, tokenizer.get(), prompt, config);
  report.shared_row_bytes = device_options.host_alias_bytes.value_or(0);
  print(report);
  if (trace) trace->write(config.trace.file);
  if (!report.result.error) return 0;
  fmt::print(stderr, "fasa: error: after {} tokens: {}\n", report.result.tokens.size(),
             *report.result.error);
  return static_cast<int>(report.result.error_kind.value_or(ErrorKind::kDevice));
}

}  // namespace

std::unique_ptr<Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace fasa
