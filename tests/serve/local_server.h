// A model, a runtime and an engine loop on one device, and test conversations with them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/io/input_file.h"
#include "runtime/serve/engine_loop.h"
#include "tests/llm/llm_fixture.h"
#include "tests/serve/recorder.h"

namespace fasa::serve {

inline constexpr int kSet = 24;  // fac_tokens: much smaller than the prompts

inline Config sparse_config() {
  Config config;
  config.selection.fac_tokens = {{.tokens = kSet, .share = 0}};
  config.selection.recent = 8;
  return config;
}

inline std::vector<int32_t> bytes_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

struct ServedModel {
  std::string dir = llm_test::bundled_dir();
  Config config = sparse_config();
  int window = 0;  // of all layers but the first `whole`; 0 = none
  int whole = 0;
  WeightOptions weights = {};
};

// A model, a runtime and a loop on one device.
class LocalServer {
 public:
  explicit LocalServer(const std::string& device_name, const EngineOptions& options = {},
                       std::optional<uint64_t> device_memory = {})
      : LocalServer(open(device_name, device_memory), options) {}
  LocalServer(std::unique_ptr<Device> device, const EngineOptions& options,
              const ServedModel& model = {})
      : device_(std::move(device)),
        model_(Model::load(model.dir, *device_, std::nullopt, model.weights)),
        runtime_(*device_, model.config, llm_test::windowed(model_, model.window, model.whole),
                 model_.dtype(), all_slice_dims(model_.config().geometry())),
        loop_(model_, runtime_, nullptr, options) {}

  std::shared_ptr<Recorder> start(std::vector<int32_t> prompt, int64_t max_tokens,
                                  const std::string& salt = "", int choices = 1,
                                  const Sampling& sampling = {}, int64_t history_tokens = 0,
                                  int64_t user_tokens = 0) {
    auto recorder = std::make_shared<Recorder>(choices);
    const auto id = loop_.submit({.salt = salt,
                                  .prompt = std::move(prompt),
                                  .history_tokens = history_tokens,
                                  .user_tokens = user_tokens,
                                  .choices = choices,
                                  .answer = {.max_tokens = max_tokens,
                                             .sampling = sampling,
                                             .logprobs = 0,
                                             .drafts = drafts},
                                  .observer = recorder});
    EXPECT_TRUE(id.has_value());
    if (!id) recorder->on_error(ErrorKind::kUsage, "refused");  // ends waiting threads
    last_id_ = id.value_or(0);
    return recorder;
  }
  EngineLoop& loop() { return loop_; }
  const EngineLoop& loop() const { return loop_; }
  const Runtime& runtime() const { return runtime_; }
  uint64_t last_id() const { return last_id_; }

  DraftKind drafts = DraftKind::kNone;  // of requests that follow

  static std::unique_ptr<Device> open(const std::string& name, std::optional<uint64_t> memory) {
    DeviceOptions options;
    options.name = name;
    options.threads = 2;
    options.device_memory = memory;
    return open_device(options);
  }

 private:
  std::unique_ptr<Device> device_;
  Model model_;
  Runtime runtime_;
  EngineLoop loop_;
  std::atomic<uint64_t> last_id_ = 0;
};

inline std::string some_text(size_t begin, size_t length) {
  static const std::string text = read_file(source_path("models/texts/ruth.txt"));
  return text.substr(begin, length);
}

struct Turns {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<double>> logprobs;
  std::vector<int64_t> computed;  // tokens of each prompt that were not in the cache
};

// Three turns: each prompt is the whole conversation so far plus new tokens.
inline Turns converse(LocalServer& server, size_t begin, size_t length, const std::string& salt) {
  Turns turns;
  std::vector<int32_t> history = bytes_of(some_text(begin, length));
  for (int turn = 0; turn < 3; ++turn) {
    const auto recorder = server.start(history, 12, salt);
    const auto& choice = recorder->wait();
    turns.ids.push_back(choice.ids);
    turns.logprobs.push_back(choice.logprobs);
    turns.computed.push_back(static_cast<int64_t>(history.size()) - recorder->cached());
    history.insert(history.end(), choice.ids.begin(), choice.ids.end());
    const auto more = bytes_of(some_text(begin + 1000 + 50 * static_cast<size_t>(turn), 40));
    history.insert(history.end(), more.begin(), more.end());
  }
  return turns;
}

}  // namespace fasa::serve
