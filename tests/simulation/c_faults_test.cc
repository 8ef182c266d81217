// The C API from config to teardown: every failure gives a status with a message, and all objects
// can be destroyed.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bindings/c/fasa.h"
#include "tests/llm/temp_model.h"
#include "tests/simulation/fault_injection.h"
#include "tests/simulation/plain_cache.h"
#include "tests/simulation/process_faults.h"

namespace fasa::testing {
namespace {

constexpr FaultPoints kCalls = {FaultPoint::kAllocation, FaultPoint::kHeap, FaultPoint::kThread,
                                FaultPoint::kFile};

struct StatusError : std::exception {
  explicit StatusError(fasa_status given) : status(given), text(fasa_last_error()) {}
  const char* what() const noexcept override { return text.c_str(); }
  fasa_status status;
  std::string text;
};

template <auto kDestroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const {
    kDestroy(handle);
  }
};
template <typename T, auto kDestroy>
using Handle = std::unique_ptr<T, Destroy<kDestroy>>;

// Every kind of call once: config from a file, device, stream, runtime, a prompt, a fork, a decoded
// token.
class ApiFaultCase final : public FaultCase {
 public:
  explicit ApiFaultCase(FaultInjector& injector) : injector_(injector) {
    folder_.write("c.toml",
                  "[device]\nname = \"emulated\"\nthreads = 1\n[selection]\nfac_tokens = 20\n"
                  "sinks = 2\nrecent = 4\n[placement]\nhot_rows = 24\n");
    path_ = folder_.path() + "/c.toml";
    for (int i = 0; i < kTokens; ++i) {
      for (const auto& [part, to] :
           {std::pair(TokenPart::kKey, &k_), std::pair(TokenPart::kValue, &v_),
            std::pair(TokenPart::kQuery, &q_)}) {
        const float* values = token_values(0, 0, i, part);
        to->insert(to->end(), values, values + kHeads * kDim);
      }
    }
    out_.resize(k_.size());
    call();
    expected_ = out_;
  }

  void prepare() override { std::fill(out_.begin(), out_.end(), 0.0f); }
  void call() override {
    fasa_config_sources sources = FASA_CONFIG_SOURCES_INIT;
    sources.file = path_.c_str();
    fasa_config* raw_config = nullptr;
    require(fasa_config_create(&sources, &raw_config));
    const Handle<fasa_config, fasa_config_destroy> config(raw_config);
    fasa_device* raw_device = nullptr;
    require(fasa_device_open(config.get(), &raw_device));
    const Handle<fasa_device, fasa_device_destroy> device(raw_device);
    fasa_stream* raw_stream = nullptr;
    require(fasa_stream_create(device.get(), &raw_stream));
    const Handle<fasa_stream, fasa_stream_destroy> stream(raw_stream);
    fasa_geometry geometry = FASA_GEOMETRY_INIT;
    geometry.layers = 1;
    geometry.kv_heads = geometry.query_heads = kHeads;
    geometry.key_dim = kDim;
    fasa_options options = FASA_OPTIONS_INIT;
    options.geometry = &geometry;
    options.config = config.get();
    options.device = device.get();
    fasa_runtime* raw_runtime = nullptr;
    require(fasa_runtime_create(&options, &raw_runtime));
    const Handle<fasa_runtime, fasa_runtime_destroy> runtime(raw_runtime);
    work(runtime.get(), stream.get());
  }
  void check_error(FaultPoint point, const std::exception& error) override {
    const auto& failed = dynamic_cast<const StatusError&>(error);
    const fasa_status wanted = point == FaultPoint::kThread ? FASA_ERROR_DEVICE
                               : point == FaultPoint::kFile ? FASA_ERROR_USAGE
                                                            : FASA_ERROR_BUDGET;
    EXPECT_EQ(failed.status, wanted) << failed.text;
    EXPECT_FALSE(failed.text.empty() && point != FaultPoint::kHeap);
    if (point != FaultPoint::kFile) return;
    EXPECT_NE(failed.text.find(path_), std::string::npos) << failed.text;
  }
  void check_unchanged() override {}
  void check_done() override { EXPECT_EQ(out_, expected_); }
  void undo() override {}

 private:
  static constexpr int kTokens = 100;
  static constexpr int kHeads = 2;
  static constexpr int kDim = 12;

  void require(fasa_status status) {
    if (status == FASA_OK) return;
    const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);
    throw StatusError(status);
  }
  static fasa_tensor tensor(std::vector<float>& values, int first, int tokens) {
    return {.data = values.data() + first * kHeads * kDim,
            .dtype = FASA_F32,
            .ndim = 3,
            .shape = {tokens, kHeads, kDim, 0},
            .strides = {kHeads * kDim, kDim, 1, 0}};
  }
  void step(fasa_runtime* runtime, fasa_stream* stream, fasa_sequence sequence, int first,
            int tokens) {
    const fasa_step_part part = {sequence, tokens, first == 0 ? FASA_PREFILL : FASA_DECODE};
    require(fasa_begin_step(runtime, &part, 1));
    const fasa_tensor k = tensor(k_, first, tokens);
    const fasa_tensor v = tensor(v_, first, tokens);
    const fasa_tensor q = tensor(q_, first, tokens);
    const fasa_tensor out = tensor(out_, first, tokens);
    require(fasa_append(runtime, 0, &k, &v, stream));
    require(fasa_attend(runtime, 0, &q, &out, nullptr, stream));
    require(fasa_end_step(runtime, nullptr, 0));
    require(fasa_stream_synchronize(stream));
  }
  void work(fasa_runtime* runtime, fasa_stream* stream) {
    fasa_sequence sequence = 0, child = 0;
    require(fasa_sequence_create(runtime, &sequence));
    step(runtime, stream, sequence, 0, kTokens - 1);
    require(fasa_sequence_fork(runtime, sequence, kTokens - 1, &child));
    require(fasa_sequence_truncate(runtime, sequence, 40));
    step(runtime, stream, child, kTokens - 1, 1);
    require(fasa_sequence_free(runtime, child));
  }

  FaultInjector& injector_;
  llm_test::TempDir folder_;
  std::string path_;
  std::vector<float> k_, v_, q_, out_, expected_;
};

TEST(CApiFaults, FromConfigToTeardown) {
  FaultInjector injector;
  ApiFaultCase fault_case(injector);
  const int64_t blocks = live_heap_blocks();
  FaultCount total;
  for (const FaultMode mode : {FaultMode::kOnce, FaultMode::kFromThenOn}) {
    total += inject_faults("C API", injector, fault_case, planned("C API", kCalls, mode, 23));
    if (HasFailure()) return;
  }
  std::cout << "C API: injected " << total.injected << ", of which " << total.thrown
            << " came out as errors\n";
  RecordProperty("injected", static_cast<int>(total.injected));
  EXPECT_LE(live_heap_blocks() - blocks, 8);  // a real leak would grow with every call
}

}  // namespace
}  // namespace fasa::testing
