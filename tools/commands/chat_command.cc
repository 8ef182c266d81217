// fasa chat: a conversation with a model in a terminal or through pipes.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/io/machine.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/generation/chat_session.h"
#include "runtime/llm/generation/model_templates.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "tools/commands/chat_loop.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/fit_flag.h"
#include "tools/flags/help_text.h"
#include "tools/flags/load_model.h"
#include "tools/flags/model_dtype.h"
#include "tools/flags/prefill_chunk_flag.h"
#include "tools/flags/sampling_flags.h"
#include "tools/flags/slice_choice.h"
#include "tools/terminal/clock.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/terminal.h"
#include "tools/terminal/word_wrap.h"

namespace fasa {
namespace {

constexpr int64_t kMinContext = 512;  // --fit keeps at least so many tokens for a conversation

class ChatCommand final : public Command, private ChatHost {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("chat", "Chat with a model");
    add_model_option(*command_, dir_)->required();
    add_option(*command_, "--system", options_.system, "TEXT", "System message, before all others");
    add_option(*command_, "--now", now_, "DATE",
               "Time for chat templates; default: SOURCE_DATE_EPOCH, else now");
    add_dtype_option(*command_, dtype_);
    add_prefill_chunk(*command_, options_.prefill_chunk);
    add_option(*command_, "--max-context", max_context_, "N", "Maximum tokens of a conversation")
        ->check(CLI::Range(int64_t{2}, int64_t{1} << 30));
    add_pre_option(*command_, pre_);
    sampling_.add_to(*command_);
    fit_.add_to(*command_);
    flags_.add_to(*command_);
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    config_ = with_map(flags_.load(), dir_);
    require_usable_target();
    const auto dtype = weights_dtype(dtype_);
    options_.answer = sampling_.options(dir_);
    options_.answer.drafts = config_.drafts.kind;
    options_.answer.audit_every = config_.audit.every;
    if (options_.answer.logprobs)
      throw UsageError("--logprobs: not supported by chat; use fasa generate");
    options_.now = shown_time(now_);
    const ModelConfig model_config = ModelConfig::load(dir_, max_context_);
    config_.validate_for(model_config.geometry());
    tokenizer_.emplace(require_tokenizer(dir_, pre_));
    templates_ = require_templates(dir_);
    device_ = open_model_device(config_.device_options(), model_config);
    const int64_t tokens = max_context_ == 0 ? model_config.max_positions
                                             : std::min(max_context_, model_config.max_positions);
    const int given = options_.prefill_chunk;
    const int chunk = given == kAutomaticChunk ? kMinPrefillChunk : given;
    FitFlag::Subject subject{.path = dir_,
                             .model = model_config,
                             .dtype = dtype,
                             .tokens = tokens,
                             .min_tokens = std::min(kMinContext, tokens),
                             .step_tokens = chunk,
                             .model_tokens = chunk};
    fit_.apply(*device_, &config_, &subject);
    options_.max_context = subject.tokens;
    model_.emplace(load_model(dir_, *device_, dtype, config_.weight_options(),
                              {max_context_, "--max-context"}));

    const Interrupts interrupts;
    LineReader input;
    if (input.is_terminal()) greet();
    ChatLoop(*this, input).run();
    return 0;
  }

 private:
  ChatSession& session(const std::string& first_question) override {
    std::vector<text::ChatMessage> messages;
    if (!options_.system.empty()) messages.push_back({"system", options_.system});
    messages.push_back({"user", first_question});
    const std::vector<int32_t> prompt =
        ChatSession::prompt_ids(*tokenizer_, *templates_, messages, options_.now);
    const ModelConfig& model = model_->config();
    const SliceChoice slices = choose_slices(*model_, config_, dir_, prompt);
    runtime_.emplace(*device_, config_, model.geometry(),
                     config_.placement.row_dtype.value_or(model.row_dtype()), slices.dims,
                     options_.max_context);
    options_.on_prefill = [this](int64_t done, int64_t total) { progress_.update(done, total); };
    options_.on_text = [this](std::string_view text) {
      end_reading();
      print(wrap_.add(text));
    };
    options_.cancelled = Interrupts::came;
    session_.emplace(*model_, *runtime_, *tokenizer_, *templates_, options_);
    return *session_;
  }
  void begin_answer() override {
    progress_.say("the first step");
    Interrupts::announce(true);
  }
  void end_reading() {
    Interrupts::announce(false);
    progress_.clear();
  }
  void finish_answer() override {
    end_reading();
    print(wrap_.finish());
  }
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  void greet() const {
    fmt::print(stderr, "{} on {}, {}; up to {} tokens\n/help lists the commands\n", dir_,
               device_->name(), config_.preset, options_.max_context);
  }
  Runtime* runtime() override { return runtime_ ? &*runtime_ : nullptr; }

  CLI::App* command_ = nullptr;
  ConfigFlags flags_;
  FitFlag fit_;
  SamplingFlags sampling_{1024, kLocalDefaults};
  std::string dir_;
  std::string pre_;
  std::string dtype_ = "auto";
  std::string now_;
  ChatOptions options_;
  int64_t max_context_ = 0;
  Config config_;
  Progress progress_{"reading the prompt"};
  WordWrap wrap_{isatty(STDOUT_FILENO) == 1 ? terminal_columns() : 0};
  // Declared in order of dependency.
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplates> templates_;
  std::unique_ptr<Device> device_;
  std::optional<Model> model_;
  std::optional<Runtime> runtime_;
  std::optional<ChatSession> session_;
};

}  // namespace

std::unique_ptr<Command> make_chat_command() { return std::make_unique<ChatCommand>(); }

}  // namespace fasa
