// OpenAI's routes, but /v1/responses, and those of tokens that vLLM and llama.cpp's server share.
#include <fmt/format.h>

#include <utility>

#include "bindings/http/api/apis.h"

namespace fasa::serve {
namespace {

Json model_json(const ServiceOptions& options) {
  return {{"id", options.model_name},
          {"object", "model"},
          {"created", options.created},
          {"owned_by", "fasa"},
          {"max_model_len", options.max_context}};
}

void chat(Completions& completions, Call& call) {
  const ChatRequest request = read_chat_request(call.body());
  Generation generation = completions.of_chat(call, request);
  generation.form = make_completion_form(completions.reply_head("chatcmpl-"), ReplyKind::kChat,
                                         request.common, request.tools.tools);
  completions.start(call, std::move(generation));
}

void complete(Completions& completions, Call& call) {
  const CompletionRequest request = read_completion_request(call.body());
  Generation generation = completions.of_text(request);
  generation.form =
      make_completion_form(completions.reply_head("cmpl-"), ReplyKind::kText, request.common);
  completions.start(call, std::move(generation));
}

void show_model(Completions& completions, Call& call) {
  completions.check_model(call.name);
  call.send(model_json(completions.options()));
}

void tokenize(const text::Tokenizer& tokenizer, Call& call) {
  const Json body = call.body();
  const RequestFields fields(body, "");
  const auto content = fields.string("content");
  if (!content) throw ApiError::bad_field("content", "missing; allowed: a string");
  const text::EncodeOptions options{
      .add_special = fields.boolean("add_special").value_or(false),
      .parse_special = fields.boolean("parse_special").value_or(true)};
  Json tokens = Json::array();
  for (const int32_t id : tokenizer.encode(*content, options)) tokens.push_back(id);
  call.send({{"tokens", std::move(tokens)}});
}

void detokenize(const text::Tokenizer& tokenizer, Call& call) {
  const Json body = call.body();
  const Json* const tokens = RequestFields(body, "").find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    throw ApiError::bad_field("tokens", "allowed: a list of token ids");
  }
  std::vector<int32_t> ids;
  for (size_t i = 0; i < tokens->size(); ++i) {
    const Json& token = (*tokens)[i];
    const bool good = token.is_number_integer() && token.get<int64_t>() >= 0 &&
                      token.get<int64_t>() < tokenizer.vocab_size();
    if (!good) {
      throw ApiError::bad_field(
          fmt::format("tokens[{}]", i),
          fmt::format("{}; allowed: 0 to {}", kind_of(token), tokenizer.vocab_size() - 1));
    }
    ids.push_back(token.get<int32_t>());
  }
  call.send({{"content", tokenizer.decode(ids, false)}});
}

}  // namespace

Routes openai_routes(Completions& completions) {
  Routes routes = {
      {"POST", "/v1/chat/completions", [&](Call& call) { chat(completions, call); }},
      {"POST", "/v1/completions", [&](Call& call) { complete(completions, call); }},
      {"GET", "/v1/models/", [&](Call& call) { show_model(completions, call); }, true},
      {"POST", "/tokenize", [&](Call& call) { tokenize(completions.tokenizer(), call); }},
      {"POST", "/detokenize", [&](Call& call) { detokenize(completions.tokenizer(), call); }}};
  for (const char* const path : {"/v1/models", "/models"}) {
    const auto list = [&](Call& call) {
      call.send({{"object", "list"}, {"data", Json::array({model_json(completions.options())})}});
    };
    routes.push_back({"GET", path, list, true});
  }
  for (const char* const path :
       {"/v1/embeddings", "/embeddings", "/embedding", "/api/embed", "/api/embeddings"}) {
    routes.push_back(refused_route(path, "this server computes no embeddings; it generates text"));
  }
  for (const char* const path : {"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"}) {
    routes.push_back(refused_route(path, "this server does not rank documents; it generates text"));
  }
  return routes;
}

}  // namespace fasa::serve
