// Requests and routes of llama.cpp's server.
#include <string>
#include <utility>

#include "bindings/http/api/api_requests.h"
#include "bindings/http/api/apis.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

// [[id, bias], ...], where false forbids the token, as an object of biases.
Json bias_object(const Json& list) {
  Json biases = Json::object();
  for (const Json& entry : list) {
    const bool pair = entry.is_array() && entry.size() == 2 && entry[0].is_number_integer() &&
                      (entry[1].is_number() || entry[1] == false);
    if (!pair) {
      throw ApiError::bad_field("logit_bias",
                                kind_of(entry) + "; allowed: pairs of a token's id and its bias");
    }
    biases[entry[0].dump()] = entry[1] == false ? Json(-100) : entry[1];
  }
  return biases;
}

}  // namespace

CompletionRequest read_llama_request(const Json& body) {
  const RequestFields fields(body, "");
  Json openai = body;
  if (const Json* const biases = fields.find("logit_bias"); biases && biases->is_array()) {
    openai["logit_bias"] = bias_object(*biases);
  }
  fields.refuse("n_probs", {0}, "not supported here; use logprobs of /v1/completions");
  fields.refuse("input_suffix", {""}, "this server does not fill in texts; omit the field");
  fields.refuse("lora", {Json::array()}, "this server has no adapters; omit the field");
  openai.erase("logprobs");
  CompletionRequest request = read_completion_request(openai);
  if (request.prompts.size() != 1) {
    throw ApiError::bad_field("prompt", "allowed: one text, or one list of token ids");
  }
  return request;
}

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
