// The routes of llama.cpp's server.
#include <string>
#include <utility>

#include "bindings/http/apis.h"
#include "bindings/http/llama_request.h"

namespace fasa::serve {
namespace {

// As llama.cpp's server has them. No path of this machine is shown.
void show_props(Completions& completions, Call& call) {
  const ServiceOptions& options = completions.options();
  const GenerationDefaults& defaults = options.defaults;
  Json params = Json::object();  // what the model's files state
  if (defaults.temperature) params["temperature"] = *defaults.temperature;
  if (defaults.top_k) params["top_k"] = *defaults.top_k;
  if (defaults.top_p) params["top_p"] = *defaults.top_p;
  if (defaults.min_p) params["min_p"] = *defaults.min_p;
  const Json settings = {{"n_ctx", options.max_context}, {"params", std::move(params)}};
  call.send({{"default_generation_settings", settings},
             {"kv_bytes_per_token",
              {{"device", options.token_memory.device}, {"host", options.token_memory.host}}},
             {"total_slots", completions.engine().options().max_sequences},
             {"model_alias", options.model_name},
             {"model_path", options.model_name},
             {"modalities", {{"vision", false}, {"audio", false}}},
             {"chat_template", completions.template_source()},
             {"answer_format", text::format_json(completions.answers().chosen())},
             {"build_info", "fasa " FASA_VERSION}});
}

void complete(Completions& completions, Call& call) {
  const CompletionRequest request = read_llama_request(call.body());
  Generation generation = completions.of_text(request);
  generation.form = make_llama_form(completions.reply_head("cmpl-"),
                                    std::ssize(generation.prompts[0]), request.common);
  completions.start(call, std::move(generation));
}

}  // namespace

Routes llama_routes(Completions& completions) {
  constexpr const char* kNoInfill =
      "this server does not fill in texts; it continues a prompt (/completion)";
  return {{"GET", "/props", [&](Call& call) { show_props(completions, call); }, true},
          {"POST", "/completion", [&](Call& call) { complete(completions, call); }},
          refused_route("/infill", kNoInfill)};
}

}  // namespace fasa::serve
