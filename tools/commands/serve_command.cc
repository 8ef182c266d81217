// fasa serve: serves a model through OpenAI's API.
#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>
#include <thread>

#include "bindings/http/server/http_server.h"
#include "bindings/http/service.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/io/machine.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/generation/auto_chunk.h"
#include "runtime/llm/generation/model_templates.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "runtime/llm/generation/open_prompt.h"
#include "runtime/serve/engine_loop.h"
#include "runtime/serve/session_fingerprint.h"
#include "tools/commands/command.h"
#include "tools/commands/served_model.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/fit_flag.h"
#include "tools/flags/load_model.h"
#include "tools/flags/model_dtype.h"
#include "tools/flags/model_facts.h"
#include "tools/flags/prefill_chunk_flag.h"
#include "tools/flags/slice_choice.h"
#include "tools/terminal/clock.h"

namespace fasa {
namespace {

using serve::EngineLoop;
using serve::HttpServer;
using serve::Service;
constexpr std::chrono::seconds kDrain{30};
constexpr int kSecondSignal = 0;
constexpr int64_t kMinContext = 512;  // --fit keeps at least so many tokens for a sequence

// Waits for SIGINT and SIGTERM. Use it from the main thread, to which the system delivers them.
class EndSignals {
 public:
  EndSignals() { expect_next(); }
  EndSignals(const EndSignals&) = delete;  // a pending operation refers to it
  EndSignals& operator=(const EndSignals&) = delete;

  // Returns true if a signal arrived within that time.
  bool wait(std::chrono::milliseconds most) {
    came_ = false;
    io_.restart();
    const auto end = std::chrono::steady_clock::now() + most;
    while (!came_ && io_.run_one_until(end) > 0) continue;
    return came_;
  }

 private:
  void expect_next() {
    signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      came_ = true;
      expect_next();
    });
  }

  bool came_ = false;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_{io_, SIGINT, SIGTERM};
};

class ServeCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("serve", "Serve a model over HTTP with OpenAI's API");
    add_model_option(*command_, dir_)->required();
    add_pre_option(*command_, pre_);
    add_address();
    add_model();
    add_steps();
    add_answers();
    fit_.add_to(*command_);
    flags_.add_to(*command_);
    return command_;
  }

  int run() override;

 private:
  void add_address();
  void add_model();
  void add_steps();
  void add_answers();
  void check() const;
  int64_t max_context(const ModelConfig& config) const;
  int serve_until_signal(HttpServer& server, Service& service, EngineLoop& engine,
                         EndSignals& signals) const;
  static void suspend(EngineLoop& engine, EndSignals& signals);
  serve::SuspensionOptions suspension_options(const Config& config, Model& model,
                                              const Runtime& runtime,
                                              const SliceChoice& slices) const;
  serve::ServiceOptions service_options(const Config& config, const ModelConfig& model) const;
  void set_engine_options(const Config& config, const Model& model, const Runtime& runtime,
                          int64_t context);
  static void tell_limits(const Config& config, const Device& device);

  CLI::App* command_ = nullptr;
  ConfigFlags flags_;
  FitFlag fit_;
  std::string dir_, pre_, key_file_, name_, now_, dtype_ = "auto";
  serve::HttpOptions http_;
  serve::EngineOptions engine_;
  std::string max_step_ms_ = "auto";
  int64_t max_context_ = 0;
  std::string template_kwargs_;
  int64_t reasoning_budget_ = -1;
  std::optional<int64_t> max_tokens_;
  std::string log_ = "text";
  bool quiet_ = false;
  bool any_model_name_ = false;
  bool allow_long_ = false;
};

void ServeCommand::add_address() {
  add_shown_option(*command_, "--host", http_.host, "ADDRESS",
                   "Address to listen on, or unix:PATH");
  add_shown_option(*command_, "--port", http_.port, "N", "Port; 0 = any free port");
  add_option(*command_, "--api-key-file", key_file_, "FILE", "File of API keys, one per line");
  add_option(*command_, "--allowed-host", http_.allowed_hosts, "NAME",
             "Allow this name in the Host header, besides addresses and localhost");
  add_option(*command_, "--allowed-origin", http_.allowed_origins, "ORIGIN",
             "Allow web pages of this origin to send requests, besides the server's own page");
}

void ServeCommand::add_model() {
  add_option(*command_, "--model-name", name_, "NAME",
             "Name of the model in the API; default: the folder's name");
  command_->add_flag("--any-model-name", any_model_name_, "Take requests for a model of any name");
  add_dtype_option(*command_, dtype_);
}

void ServeCommand::add_steps() {
  add_option(*command_, "--max-sequences", engine_.max_sequences, "N",
             "Requests that run at the same time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  add_option(*command_, "--max-waiting", engine_.max_waiting, "N",
             "Requests that wait in the queue; further ones get status 429")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  add_option(*command_, "--max-context", max_context_, "N",
             "Maximum tokens of a prompt and its answer")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30));
  add_prefill_chunk(*command_, engine_.prefill_chunk);
  command_->get_option("--prefill-chunk")->check(CLI::Range(kAutomaticChunk, 65'536));
  add_option(*command_, "--max-step-ms", max_step_ms_, "MS",
             "Target time of a decode step and the prompts read after it; auto = twice the "
             "time of a decode step, at most 100")
      ->check(CLI::IsMember({"auto"}) | CLI::Range(0.1, 60'000.0))
      ->capture_default_str();
  add_option(*command_, "--remember", engine_.log_bytes, "SIZE",
             "Memory for the tokens of conversations that were evicted, so that their next "
             "turn is recomputed with the same results")
      ->transform(CLI::Validator(
          [](std::string& text) {
            const auto bytes = parse_bytes(text);
            if (!bytes) {
              return fmt::format("\"{}\"; allowed: a size, such as 64MiB{}", text,
                                 missing_unit_hint(text));
            }
            text = std::to_string(*bytes);
            return std::string();
          },
          ""))
      ->default_str("64MiB");
}

void ServeCommand::add_answers() {
  add_option(*command_, "--template-kwargs", template_kwargs_, "JSON",
             "Variables of the chat template for requests that do not set them, such as "
             "'{\"enable_thinking\": false}'");
  add_option(*command_, "--reasoning-budget", reasoning_budget_, "N",
             "Maximum tokens of a thought, which is then ended; 0 = no thoughts")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  add_option(*command_, "--max-tokens-default", max_tokens_, "N",
             "Maximum tokens of an answer whose request sets none; default: what the "
             "context leaves")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  add_option(*command_, "--log", log_, "FORM",
             "Form of the log's line for each request: text, json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command_->add_flag("--quiet", quiet_, "Log no requests")->excludes("--log");
  command_->add_flag("--allow-long", allow_long_,
                     "Allow a --max-context above the model's positions");
  add_option(*command_, "--now", now_, "DATE", "Date for chat templates");
}

// Without API keys, listen on loopback only, so that no network is served by mistake.
void ServeCommand::check() const {
  if (serve::is_loopback(http_.host) || !key_file_.empty()) return;
  throw UsageError(
      fmt::format("--host {} is reachable from other machines: give --api-key-file FILE, or listen "
                  "on 127.0.0.1",
                  http_.host));
}

int64_t ServeCommand::max_context(const ModelConfig& config) const {
  if (max_context_ == 0) return config.max_positions;
  if (max_context_ > config.max_positions && !allow_long_) {
    throw UsageError(
        fmt::format("--max-context {} exceeds the model's {} positions; allow it with --allow-long",
                    max_context_, config.max_positions));
  }
  return max_context_;
}

int ServeCommand::serve_until_signal(HttpServer& server, Service& service, EngineLoop& engine,
                                     EndSignals& signals) const {
  constexpr std::chrono::milliseconds kLook{200};
  while (!signals.wait(kLook)) {
    if (const auto failure = engine.failure()) {
      // After a device failure, this process's results cannot be trusted.
      server.drain();
      server.wait_idle(std::chrono::seconds(2));
      throw DeviceError(*failure);
    }
  }
  if (engine.idle()) {
    fmt::print(stderr, "fasa serve: shutting down\n");
  } else {
    fmt::print(stderr,
               "fasa serve: shutting down: running requests have {} s to finish; a second signal "
               "stops the server at once\n",
               kDrain.count());
  }
  service.drain();
  engine.drain();
  server.drain();
  const auto deadline = std::chrono::steady_clock::now() + kDrain;
  while (std::chrono::steady_clock::now() < deadline) {
    if (engine.idle() && server.wait_idle(std::chrono::milliseconds(0))) break;
    if (signals.wait(std::chrono::milliseconds(50))) return kSecondSignal;
  }
  if (engine.options().sessions) suspend(engine, signals);
  return kSecondSignal;
}

// Writes the conversations that are only in memory to disk.
void ServeCommand::suspend(EngineLoop& engine, EndSignals& signals) {
  engine.suspend_idle_now();
  while (engine.status().suspension.busy && !engine.failure()) {
    if (signals.wait(std::chrono::milliseconds(50))) return;
  }
  fmt::print(stderr, "fasa serve: {} of conversations are on disk\n",
             format_bytes(engine.status().suspension.disk_bytes));
}

serve::SuspensionOptions ServeCommand::suspension_options(const Config& config, Model& model,
                                                          const Runtime& runtime,
                                                          const SliceChoice& slices) const {
  const serve::SessionSubject subject{.path = dir_,
                                      .version = FASA_VERSION,
                                      .device = model.device().kind(),
                                      .dtype = model.dtype(),
                                      .row_dtype = runtime.traits().row_dtype,
                                      .slice_dims = slices.dims,
                                      .short_factors = !model.config().rope.long_factors.empty()};
  return {.dir = config.sessions.dir,
          .limit_bytes = *config.sessions.limit,
          .idle_after = config.sessions.idle_after,
          .fingerprint = serve::session_fingerprint(subject, config),
          .snapshots = config.memory.snapshots};
}

serve::ServiceOptions ServeCommand::service_options(const Config& config,
                                                    const ModelConfig& model) const {
  return {.model_name = !name_.empty() ? name_ : model_name_of(dir_),
          .any_model_name = any_model_name_,
          .model_path = dir_,
          .model = model_facts(dir_, model),
          .created = static_cast<int64_t>(std::time(nullptr)),
          .max_context = max_context(model),
          .vocab_size = model.vocab_size,
          .marks_borders = marks_borders(model.geometry()),
          .defaults = GenerationDefaults::load(dir_),
          .drafts = config.drafts.kind,
          .audit_every = config.audit.every,
          .template_variables = template_variables(template_kwargs_),
          .max_tokens = max_tokens_,
          .reasoning_budget = reasoning_budget_,
          .keys = key_file_.empty() ? serve::ApiKeys() : serve::ApiKeys::load(key_file_),
          .log = quiet_           ? serve::LogForm::kNone
                 : log_ == "json" ? serve::LogForm::kJson
                                  : serve::LogForm::kText,
          .now = [now = now_] { return shown_time(now); }};
}

void ServeCommand::set_engine_options(const Config& config, const Model& model,
                                      const Runtime& runtime, int64_t context) {
  if (engine_.prefill_chunk == kAutomaticChunk) {
    const int most = OpenPrompt::possible(runtime) ? kPieceTokens : kMaxServedChunk;
    engine_.prefill_chunk = automatic_chunk(model, runtime, context, context, most);
  }
  engine_.max_step_seconds = max_step_ms_ == "auto" ? 0 : std::stod(max_step_ms_) * 1e-3;
  engine_.prompt_share = config.serve.prompt_share;
  engine_.threads = config.device.threads;
  engine_.sparse_turn_tokens = config.sessions.sparse_turn_tokens;
}

void ServeCommand::tell_limits(const Config& config, const Device& device) {
  if (!config.device.gpu.empty() && device.name() == "cpu") {
    fmt::print(stderr, "fasa serve: device.gpu = \"{}\" is a GPU to plan for; this runs on {}\n",
               config.device.gpu, device.name());
  }
  if (const std::string limits = group_limits(); !limits.empty()) {
    fmt::print(stderr, "fasa serve: limits of the control group: {}\n", limits);
  }
}

int ServeCommand::run() {
  reject_unknown_arguments(*command_);
  check();
  EndSignals signals;
  Config config = with_map(flags_.load(), dir_);
  require_usable_target();
  const ModelConfig model_config = ModelConfig::load(dir_, max_context_);
  config.validate_for(model_config.geometry());
  const auto tokenizer = require_tokenizer(dir_, pre_);
  const auto templates = open_templates(dir_);
  serve::ServiceOptions options = service_options(config, model_config);
  const auto device = open_model_device(config.device_options(), model_config);
  const int given = engine_.prefill_chunk;
  const int chunk = given == kAutomaticChunk ? kMinPrefillChunk : given;
  FitFlag::Subject subject{.path = dir_,
                           .model = model_config,
                           .dtype = weights_dtype(dtype_),
                           .tokens = options.max_context,
                           .min_tokens = std::min(kMinContext, options.max_context),
                           .step_tokens = chunk,
                           .model_tokens = chunk};
  fit_.apply(*device, &config, &subject);
  options.max_context = subject.tokens;
  Model model = load_model(dir_, *device, weights_dtype(dtype_), config.weight_options(),
                           {max_context_, "--max-context"});
  const SliceChoice slices = choose_slices(model, config, dir_, {});
  const RowDType row_dtype = config.placement.row_dtype.value_or(model_config.row_dtype());
  Runtime runtime(*device, config, model.config().geometry(), row_dtype, slices.dims,
                  options.max_context);
  set_engine_options(config, model, runtime, options.max_context);
  options.token_memory = token_memory(runtime, options.max_context, engine_.prefill_chunk);
  if (!config.sessions.dir.empty()) {
    engine_.sessions = suspension_options(config, model, runtime, slices);
    options.keys.hash_with(serve::store_salt(config.sessions.dir));
  }
  EngineLoop engine(model, runtime, &tokenizer, engine_);
  const int64_t context = options.max_context;  // beside what the engine holds
  const Room room = room_of(runtime, *device, context, engine_.prefill_chunk);
  options.max_context = std::max(room.tokens, int64_t{2});
  Service service(options, engine, tokenizer, templates ? &*templates : nullptr);
  HttpServer server(
      http_,
      [&service](serve::HttpRequest request, std::shared_ptr<serve::HttpExchange> exchange) {
        service.handle(std::move(request), std::move(exchange));
      },
      [](int status, const std::string& message) {
        return serve::error_response(status, message);
      });
  service.set_counters(&server.counters());
  tell_limits(config, *device);
  print_room(room, options.token_memory, context);
  if (engine_.sessions) {
    fmt::print(stderr, "fasa serve: found {} of conversations on disk\n",
               format_bytes(engine.status().suspension.disk_bytes));
  }
  fmt::print(stderr, "fasa serve: {} on {}, contexts of {} tokens\nfasa serve: at {}\n",
             options.model_name, device->name(), options.max_context, server.address());
  return serve_until_signal(server, service, engine, signals);
}

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace fasa
