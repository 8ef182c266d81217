#include "bindings/http/llama_request.h"

#include <string>
#include <utility>

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

}  // namespace fasa::serve
