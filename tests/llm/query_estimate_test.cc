// Predictions of later layers' queries: equal to the layer's own query where the residual does not
// change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "runtime/base/error.h"
#include "runtime/llm/host_sink.h"
#include "runtime/llm/layer_work.h"
#include "runtime/llm/rope_frequencies.h"
#include "runtime/llm/weights/safetensors.h"
#include "tests/llm/llm_fixture.h"
#include "tests/llm/temp_model.h"

namespace fasa::llm_test {
namespace {

// Feeds any residual to a single layer, without a model.
class LoneLayer {
 public:
  LoneLayer(const std::string& dir, DType dtype, int64_t tokens)
      : device_(open_test_device("cpu")),
        config_(ModelConfig::load(dir)),
        dtype_(dtype),
        stream_(device_->create_stream(StreamPriority::kNormal, "test")),
        weights_(std::make_unique<WeightFiles>(dir), config_, dtype, *device_, stream_.view()),
        activations_(*device_, config_, dtype, tokens, 1),
        rotations_(make_rotations(config_)) {
    shape_.tokens = tokens;
    shape_.runs = {{tokens, StepMode::kDecode}};
    for (int i = 0; i < tokens; ++i) shape_.positions.push_back(7 + 13 * i);
    for (const Rotation& rotation : rotations_) frequencies_.push_back(rotation.frequencies.data());
    inputs_ = {.positions = shape_.positions.data(), .frequencies = frequencies_};
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < tokens * config_.hidden; ++i) {
      activations_.residual()[i] = normal(random);
    }
    bytes_of([](const LayerWork& work) { work.begin(); });
  }

  // The bytes that `work` reports for a LayerWork.
  template <typename Work>
  uint64_t bytes_of(const Work& work) const {
    HostSink sink(parts_);
    work(LayerWork(parts_, shape_, inputs_, sink));
    return sink.work().device_bytes;
  }
  const ModelConfig& config() const { return config_; }
  size_t query_bytes() const {
    return static_cast<size_t>(config_.query_heads * config_.head_dim * dtype_bytes(dtype_));
  }
  size_t qkv_bytes() const {
    return query_bytes() +
           static_cast<size_t>(2 * config_.kv_heads * config_.head_dim * dtype_bytes(dtype_));
  }
  const std::byte* qkv() const { return activations_.qkv(); }

 private:
  std::unique_ptr<Device> device_;
  ModelConfig config_;
  DType dtype_;
  Stream stream_;
  Weights weights_;
  Activations activations_;
  std::vector<Rotation> rotations_;
  LinearLayout linear_{config_.linear};
  EngineParts parts_ = {*device_,     config_, linear_,    weights_,
                        activations_, dtype_,  rotations_, stream_.view()};
  StepShape shape_;
  std::vector<const float*> frequencies_;
  StepInputs inputs_;
};

class QueryOfLayer : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(QueryOfLayer, HasTheBitsOfTheLayersOwn) {
  const auto& [name, dtype] = GetParam();
  constexpr int64_t kTokens = 3;
  const LoneLayer lone(name == "needle-3m" ? bundled_dir() : golden_dir(name), dtype, kTokens);
  std::vector<std::byte> query(kTokens * lone.query_bytes());
  for (int layer = 0; layer < lone.config().layers; ++layer) {
    const uint64_t bytes =
        lone.bytes_of([&](const LayerWork& work) { work.query_of(layer, query.data()); });
    const uint64_t all_bytes =
        lone.bytes_of([&](const LayerWork& work) { work.before_attention(layer, {}); });
    EXPECT_GT(bytes, 0u);
    EXPECT_LE(bytes, all_bytes);
    for (size_t token = 0; token < kTokens; ++token) {
      EXPECT_EQ(std::memcmp(query.data() + token * lone.query_bytes(),
                            lone.qkv() + token * lone.qkv_bytes(), lone.query_bytes()),
                0)
          << "layer " << layer << ", token " << token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, QueryOfLayer,
                         ::testing::Combine(::testing::Values("needle-3m", "llama-biases",
                                                              "llama-odd-head", "mistral-window",
                                                              "qwen2-window", "qwen3", "ministral3",
                                                              "cohere2", "olmo2", "smollm3-window",
                                                              "phi3", "gemma2", "gemma3"),
                                            ::testing::Values(DType::kF32, DType::kBF16)));

// The bundled model with layers that add nothing to the residual.
class IdentityLayers {
 public:
  IdentityLayers() {
    folder_.copy_from(bundled_dir());
    std::string bytes = read_file(bundled_dir() + "/model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    const auto header = nlohmann::json::parse(bytes.substr(sizeof(length), length));
    for (const auto& [name, tensor] : header.items()) {
      if (!name.ends_with("o_proj.weight") && !name.ends_with("down_proj.weight")) continue;
      const auto range = tensor["data_offsets"].get<std::vector<size_t>>();
      std::fill(bytes.begin() + static_cast<int64_t>(sizeof(length) + length + range[0]),
                bytes.begin() + static_cast<int64_t>(sizeof(length) + length + range[1]), '\0');
    }
    std::filesystem::remove(folder_.path() + "/model.safetensors");
    folder_.write("model.safetensors", bytes);
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TempDir folder_;
};

std::vector<std::byte> bytes_of(ConstTensorView view) {
  std::vector<std::byte> bytes;
  const auto row = static_cast<size_t>(view.dim * dtype_bytes(view.dtype));
  for (int64_t token = 0; token < view.tokens; ++token) {
    for (int64_t head = 0; head < view.heads; ++head) {
      const auto* from = static_cast<const std::byte*>(view.data) +
                         view.offset(token, head) * dtype_bytes(view.dtype);
      bytes.insert(bytes.end(), from, from + row);
    }
  }
  return bytes;
}

class Queries : public LayerObserver {
 public:
  void on_layer(int layer, ConstTensorView q, ConstTensorView, ConstTensorView, int64_t) override {
    own[layer] = bytes_of(q);
  }
  void on_estimate(int layer, int ahead, ConstTensorView q) override {
    estimates[{layer, ahead}] = bytes_of(q);
  }
  std::map<int, std::vector<std::byte>> own;
  std::map<std::pair<int, int>, std::vector<std::byte>> estimates;
};

TEST(QueryEstimate, IsTheLaterLayersQueryWhereTheResidualStays) {
  const IdentityLayers folder;
  for (const std::string name : {"cpu", "emulated"}) {
    const auto device = open_test_device(name);
    Model model = Model::load(folder.path(), *device, std::nullopt);
    EXPECT_EQ(model.query_source(), nullptr);
    model.reserve_estimates(1, 3);
    ASSERT_NE(model.query_source(), nullptr);
    EXPECT_EQ(model.query_source()->max_depth(), 3);
    const auto runtime = full_runtime(model);
    const SequenceId sequence = runtime->create();
    const std::vector<int32_t> prompt = {72, 101, 32, 115};
    const StepSequence prefill[] = {{sequence, 4, StepMode::kPrefill}};
    model.step(*runtime, prompt, prefill);
    const StepSequence decode[] = {{sequence, 1, StepMode::kDecode}};
    Queries queries;
    const int32_t token = 97;
    model.step(*runtime, {&token, 1}, decode, {.observer = &queries, .estimate_depth = 3});
    ASSERT_EQ(queries.estimates.size(), 3u + 2u + 1u);
    for (const auto& [place, query] : queries.estimates) {
      EXPECT_EQ(query, queries.own.at(place.first + place.second))
          << name << ": layer " << place.first << ", " << place.second << " ahead";
    }
  }
}

// Calls the query source at moments when that is not allowed.
class Meddler : public LayerObserver {
 public:
  explicit Meddler(Model& model) : model_(model) {}
  void on_layer(int layer, ConstTensorView, ConstTensorView, ConstTensorView, int64_t) override {
    const auto message = [&](int from, int ahead) {
      try {
        model_.query_source()->estimate(from, ahead, model_.stream());
        return std::string("nothing");
      } catch (const UsageError& error) {
        return std::string(error.what());
      }
    };
    if (layer == 1) {
      beyond_room = message(1, 3);
      not_ahead = message(1, 0);
      other_layer = message(2, 1);
    } else if (layer == 3) {
      beyond_model = message(3, 1);
    }
  }
  std::string beyond_room, not_ahead, beyond_model, other_layer;

 private:
  Model& model_;
};

TEST(QueryEstimate, SaysWhatIsOutside) {
  using ::testing::HasSubstr;
  const auto device = open_test_device("cpu");  // on the cpu device observers run inside forward()
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  EXPECT_THROW(model.reserve_estimates(1, 4), UsageError);
  EXPECT_THROW(model.reserve_estimates(1, 0), UsageError);
  EXPECT_THROW(model.reserve_estimates(0, 1), UsageError);
  model.reserve_estimates(1, 2);
  EXPECT_THROW(model.query_source()->estimate(0, 1, model.stream()), UsageError);
  const auto runtime = full_runtime(model);
  const SequenceId sequence = runtime->create();
  const int32_t token = 97;
  const StepSequence decode[] = {{sequence, 1, StepMode::kDecode}};
  EXPECT_THROW(model.step(*runtime, {&token, 1}, decode, {.estimate_depth = 3}), UsageError);
  Meddler meddler(model);
  model.step(*runtime, {&token, 1}, decode, {.observer = &meddler});
  EXPECT_THAT(meddler.beyond_room, HasSubstr("1 to 2 layers ahead"));
  EXPECT_THAT(meddler.not_ahead, HasSubstr("1 to 2 layers ahead"));
  EXPECT_THAT(meddler.beyond_model, HasSubstr("layers 0 to 3"));
  EXPECT_THAT(meddler.other_layer, HasSubstr("the current layer is 1"));
  const StepSequence prefill[] = {{sequence, 1, StepMode::kPrefill}};
  EXPECT_THROW(
      model.step(*runtime, {&token, 1}, prefill, {.observer = &meddler, .estimate_depth = 1}),
      UsageError);
}

}  // namespace
}  // namespace fasa::llm_test
