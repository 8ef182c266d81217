// The routes of llama.cpp's server.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/call.h"
#include "bindings/http/generation.h"
#include "bindings/http/llama_request.h"

namespace fasa::serve {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// A name, not a path.
std::string read_filename(const Json& body) {
  constexpr size_t kMost = 128;
  const std::string name = RequestFields(body, "").string("filename").value_or("");
  const auto fits = [](unsigned char c) {
    return (c < 128 && std::isalnum(c)) || c == '.' || c == '_' || c == '-';
  };
  if (name.empty() || name.size() > kMost || name[0] == '.' ||
      !std::all_of(name.begin(), name.end(), fits)) {
    throw ApiError::bad_field(
        "filename", fmt::format("\"{}\"; allowed: a name of 1 to {} letters, digits, _, - and ., "
                                "which does not begin with a dot",
                                name.substr(0, 40), kMost));
  }
  return name;
}

int64_t slot_number(const std::string& text) {
  int64_t slot = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slot);
  return error == std::errc() && end == text.data() + text.size() ? slot : -1;
}

}  // namespace

// As llama.cpp's server has them. No path of this machine is shown.
HttpResponse Service::props() const {
  const GenerationDefaults& defaults = options_.defaults;
  Json params = Json::object();  // what the model's files state
  if (defaults.temperature) params["temperature"] = *defaults.temperature;
  if (defaults.top_k) params["top_k"] = *defaults.top_k;
  if (defaults.top_p) params["top_p"] = *defaults.top_p;
  if (defaults.min_p) params["min_p"] = *defaults.min_p;
  const Json settings = {{"n_ctx", options_.max_context}, {"params", std::move(params)}};
  return {.body = reply_text(
              {{"default_generation_settings", settings},
               {"kv_bytes_per_token",
                {{"device", options_.token_memory.device}, {"host", options_.token_memory.host}}},
               {"total_slots", engine_.options().max_sequences},
               {"model_alias", options_.model_name},
               {"model_path", options_.model_name},
               {"modalities", {{"vision", false}, {"audio", false}}},
               {"chat_template", templates_ == nullptr ? "" : templates_->source("", false)},
               {"answer_format", text::format_json(answers_.chosen())},
               {"build_info", "fasa " FASA_VERSION}})};
}

// A slot for each request that can run.
HttpResponse Service::slots() const {
  const int running = engine_.status().running;
  Json list = Json::array();
  for (int i = 0; i < engine_.options().max_sequences; ++i) {
    list.push_back({{"id", i},
                    {"n_ctx", options_.max_context},
                    {"speculative", false},
                    {"is_processing", i < running}});
  }
  return {.body = reply_text(list)};
}

// Remembers the request's conversation as that of its slot.
int Service::take_slot(const Call& call, Generation& generation) {
  const CompletionFields& fields = generation.fields;
  if (generation.prompts.size() != 1 || fields.choices != 1) return -1;
  const int slot = slots_.take(call.salt, fields.slot, generation.prompts[0]);
  generation.ended = [this, salt = call.salt, slot](std::vector<int32_t> ids) {
    slots_.set(salt, slot, std::move(ids));
  };
  return slot;
}

void Service::complete_llama(Call& call) {
  const CompletionRequest request = read_llama_request(parse_body(call.request.body));
  Generation generation = text_generation(request);
  const int slot = take_slot(call, generation);
  generation.form =
      make_llama_form(reply_head("cmpl-"), std::ssize(generation.prompts[0]), slot, request.common);
  start(call, std::move(generation));
}

// POST /slots/ID?action=...
void Service::act_on_slot(Call& call) {
  if (!engine_.options().sessions) {
    throw ApiError(501, "not_implemented_error",
                   "this server saves no slots; start it with --sessions-dir", "",
                   "not_implemented");
  }
  const int64_t slot = slot_number(call.behind("/slots/"));
  std::vector<int32_t> ids = slots_.ids(call.salt, slot);
  const std::string& action = call.request.query;
  if (action == "action=restore") return call.exchange->send(restore_slot(call, slot));
  if (action != "action=save" && action != "action=erase") {
    throw ApiError::bad_field("action", "allowed: save, restore, erase");
  }
  if (action == "action=erase") return call.exchange->send(erase_slot(call, slot, ids));
  if (ids.empty()) {
    throw ApiError::bad_field("id_slot", fmt::format("slot {} has no conversation to save", slot));
  }
  save_slot(call, slot, std::move(ids));
}

// Suspends the slot's conversation. The answer is sent when it is on disk.
void Service::save_slot(Call& call, int64_t slot, std::vector<int32_t> ids) {
  const std::string name = read_filename(parse_body(call.request.body));
  const auto record = slot_record(name, ids);
  // Runs on the engine's thread, perhaps after the service's end.
  const auto saved = [exchange = call.exchange, records = records_, salt = call.salt, record, slot,
                      name, tokens = ids.size(),
                      begin = Clock::now()](std::optional<uint64_t> bytes) {
    if (!bytes) {
      return exchange->send(error_response(
          503, fmt::format("slot {} could not be saved: another request continues its "
                           "conversation, or the disk refuses it (see the server's log)",
                           slot)));
    }
    records->add(salt, record);
    exchange->send({.body = reply_text({{"id_slot", slot},
                                        {"filename", name},
                                        {"n_saved", tokens},
                                        {"n_written", *bytes},
                                        {"timings", {{"save_ms", ms_since(begin)}}}})});
  };
  engine_.attach({.salt = call.salt, .ids = std::move(ids), .records = {record}, .saved = saved});
}

// The next request that continues the conversation reads its pages.
HttpResponse Service::restore_slot(const Call& call, int64_t slot) {
  const auto begin = Clock::now();
  const std::string name = read_filename(parse_body(call.request.body));
  const auto record = records_->find(call.salt, slot_record_id(name));
  if (record == nullptr) {
    throw ApiError(404, "not_found_error",
                   fmt::format("filename: no conversation \"{}\" is saved here", name), "filename",
                   "not_found");
  }
  std::vector<int32_t> ids = ids_of(*record);
  const size_t tokens = ids.size();
  slots_.set(call.salt, static_cast<int>(slot), std::move(ids));
  return {.body = reply_text({{"id_slot", slot},
                              {"filename", name},
                              {"n_restored", tokens},
                              {"n_read", 0},
                              {"timings", {{"restore_ms", ms_since(begin)}}}})};
}

// A conversation that was saved or has stored responses stays: it is only forgotten with its last
// record.
HttpResponse Service::erase_slot(const Call& call, int64_t slot, const std::vector<int32_t>& ids) {
  const auto mark = std::make_shared<Record>("slot erased", "");
  engine_.attach({.salt = call.salt, .ids = ids, .records = {mark}});
  engine_.detach(call.salt, mark->id);
  slots_.set(call.salt, static_cast<int>(slot), {});
  return {.body = reply_text({{"id_slot", slot}, {"n_erased", ids.size()}})};
}

}  // namespace fasa::serve
