// What a server is started with.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>

#include "bindings/http/api/request_fields.h"
#include "bindings/http/api_keys.h"
#include "bindings/http/request_log.h"
#include "runtime/config/draft_kind.h"
#include "runtime/llm/generation/generation_defaults.h"

namespace fasa::serve {

// Bytes of the cache per token of a long conversation.
struct TokenMemory {
  uint64_t device = 0, host = 0;
};

// What the served model's files say.
struct ModelFacts {
  std::string architecture;  // "qwen3"
  std::string quantization;  // "BF16", "Q4_K_M"
  std::string format;        // "gguf", "safetensors"
  int64_t parameters = 0;
  uint64_t bytes = 0;
  std::string digest = {};  // of the files' contents: 64 hexadecimal digits
};

struct ServiceOptions {
  std::string model_name;       // in /v1/models
  bool any_model_name = false;  // requests may name any model
  std::string model_path = {};  // not shown to clients
  ModelFacts model = {};
  int64_t created = 0;      // seconds since 1970
  int64_t max_context = 0;  // tokens of a prompt and its answer
  int64_t vocab_size = 0;
  bool marks_borders = false;  // requests say where the next prompt may part from theirs
  GenerationDefaults defaults = {};
  DraftKind drafts = DraftKind::kNone;       // of answers, unless requests say
  std::optional<int> audit_every = 0;        // of answers, see Audit
  Json template_variables = Json::object();  // for requests that do not name them
  std::optional<int64_t> max_tokens = {};    // of answers whose requests say nothing
  int64_t reasoning_budget = -1;             // tokens; below 0: no limit
  TokenMemory token_memory = {};
  ApiKeys keys = {};
  std::chrono::milliseconds ping_after{15'000};
  LogForm log = LogForm::kNone;  // of requests
  std::function<std::tm()> now;  // for chat templates
};

}  // namespace fasa::serve
