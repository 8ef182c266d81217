// Ollama's routes.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <string>
#include <utility>

#include "bindings/http/api/api_requests.h"
#include "bindings/http/api/apis.h"

namespace fasa::serve {
namespace {

// The version of the API that these routes speak. Clients refuse earlier ones.
constexpr const char* kVersion = "0.12.0";

std::string time_text(int64_t seconds) {
  const auto at = static_cast<std::time_t>(seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(at));
}

std::string size_text(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return count < 1e9 ? fmt::format("{:.1f}M", count / 1e6) : fmt::format("{:.1f}B", count / 1e9);
}

Json details_json(const ModelFacts& model) {
  return {{"parent_model", ""},
          {"format", model.format},
          {"family", model.architecture},
          {"families", Json::array({model.architecture})},
          {"parameter_size", size_text(model.parameters)},
          {"quantization_level", model.quantization}};
}

Json model_json(const ServiceOptions& options) {
  return {{"name", options.model_name},
          {"model", options.model_name},
          {"modified_at", time_text(options.created)},
          {"size", options.model.bytes},
          {"digest", options.model.digest},
          {"details", details_json(options.model)}};
}

void list_models(Completions& completions, Call& call) {
  call.send({{"models", Json::array({model_json(completions.options())})}});
}

// The model stays in memory as long as the server runs.
void list_loaded(Completions& completions, Call& call) {
  constexpr int64_t kYear = 365 * 24 * 3600;
  Json model = model_json(completions.options());
  model.erase("modified_at");
  model["expires_at"] = time_text(std::time(nullptr) + kYear);
  const bool device = completions.options().token_memory.device > 0;
  model["size_vram"] = device ? completions.options().model.bytes : 0;
  model["context_length"] = completions.options().max_context;
  call.send({{"models", Json::array({std::move(model)})}});
}

void describe(Completions& completions, Call& call) {
  const Json body = call.body();
  const RequestFields fields(body, "");
  const auto name = fields.string("model");
  completions.check_model(name ? *name : fields.string("name").value_or(""));
  const ServiceOptions& options = completions.options();
  Json abilities = Json::array({"completion"});
  if (completions.answers().calls_tools()) abilities.push_back("tools");
  if (completions.answers().thinks()) abilities.push_back("thinking");
  const std::string& family = options.model.architecture;
  call.send({{"modelfile", ""},
             {"parameters", ""},
             {"template", completions.template_source()},
             {"details", details_json(options.model)},
             {"model_info",
              {{"general.architecture", family},
               {"general.parameter_count", options.model.parameters},
               {family + ".context_length", options.max_context}}},
             {"capabilities", std::move(abilities)},
             {"modified_at", time_text(options.created)}});
}

// Answers a request that only loads or unloads the model.
bool is_load(Completions& completions, Call& call, const Json& body, bool chat) {
  const std::string reason = ollama_load_reason(body, chat);
  if (reason.empty()) return false;
  completions.check_model(RequestFields(body, "").string("model").value_or(""));
  Json json = {{"model", completions.options().model_name},
               {"created_at", time_text(std::time(nullptr))}};
  if (chat) {
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    json["response"] = "";
  }
  json["done"] = true;
  json["done_reason"] = reason;
  call.exchange->send({.body = json_text(json) + "\n"});
  return true;
}

void chat(Completions& completions, Call& call) {
  const Json body = call.body();
  if (is_load(completions, call, body, true)) return;
  const ChatRequest request = read_ollama_chat(body);
  Generation generation = completions.of_chat(call, request);
  generation.form = make_ollama_form(completions.reply_head("chatcmpl-"), true);
  completions.start(call, std::move(generation));
}

void generate(Completions& completions, Call& call) {
  const Json body = call.body();
  if (is_load(completions, call, body, false)) return;
  if (!completions.has_chats() || is_raw_prompt(body)) {
    const CompletionRequest request = read_ollama_raw_prompt(body);
    Generation generation = completions.of_text(request);
    generation.form = make_ollama_form(completions.reply_head("cmpl-"), false);
    return completions.start(call, std::move(generation));
  }
  const ChatRequest request = read_ollama_prompt(body);
  Generation generation = completions.of_chat(call, request);
  generation.form = make_ollama_form(completions.reply_head("cmpl-"), false);
  completions.start(call, std::move(generation));
}

}  // namespace

Routes ollama_routes(Completions& completions) {
  return {{"GET", "/api/version",
           [](Call& call) {
             call.send({{"version", kVersion}});
           },
           true},
          {"GET", "/api/tags", [&](Call& call) { list_models(completions, call); }, true},
          {"GET", "/api/ps", [&](Call& call) { list_loaded(completions, call); }, true},
          {"POST", "/api/show", [&](Call& call) { describe(completions, call); }},
          {"POST", "/api/chat", [&](Call& call) { chat(completions, call); }},
          {"POST", "/api/generate", [&](Call& call) { generate(completions, call); }}};
}

}  // namespace fasa::serve
