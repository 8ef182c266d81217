// Experts stacked in one tensor a layer and kind, as published folders of Qwen have them: the same
// logits as with a tensor an expert.
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "kernels/packed_format.h"
#include "runtime/base/error.h"
#include "tests/llm/llm_fixture.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using namespace llm_test;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};
using Tensors = std::map<std::string, Tensor>;

Tensors parse(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const auto header = nlohmann::json::parse(file.substr(sizeof(length), length));
  Tensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto at = entry["data_offsets"].get<std::vector<uint64_t>>();
    tensors[name] = {entry["dtype"].get<std::string>(), entry["shape"].get<std::vector<int64_t>>(),
                     file.substr(sizeof(length) + length + at[0], at[1] - at[0])};
  }
  return tensors;
}

std::string bytes_of(const Tensors& tensors) {
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  return safetensors_bytes(header.dump(), data);
}

Tensor take(Tensors& tensors, const std::string& name) {
  const Tensor tensor = std::move(tensors.at(name));
  tensors.erase(name);
  return tensor;
}

// Replaces `root`N.gate_proj, up_proj and down_proj by root.gate_up_proj and root.down_proj.
void stack(Tensors& tensors, const std::string& root) {
  Tensor gate_up, down;
  int64_t count = 0;
  for (; tensors.contains(root + std::to_string(count) + ".gate_proj.weight"); ++count) {
    const std::string expert = root + std::to_string(count);
    const Tensor gate = take(tensors, expert + ".gate_proj.weight");
    gate_up.data += gate.data + take(tensors, expert + ".up_proj.weight").data;
    const Tensor own_down = take(tensors, expert + ".down_proj.weight");
    down.data += own_down.data;
    gate_up.dtype = down.dtype = gate.dtype;
    gate_up.shape = {count + 1, 2 * gate.shape[0], gate.shape[1]};
    down.shape = {count + 1, own_down.shape[0], own_down.shape[1]};
  }
  if (count == 0) return;  // a layer without experts
  tensors[root + "gate_up_proj"] = gate_up;
  tensors[root + "down_proj"] = down;
}

class StackedExperts : public ::testing::TestWithParam<const char*> {};

TEST_P(StackedExperts, GiveTheLogitsOfExpertsOneByOne) {
  const std::string folder = golden_dir(GetParam());
  const Golden golden = Golden::load(folder);
  Tensors tensors = parse(read_file(folder + "/model.safetensors"));
  const size_t before = tensors.size();
  const auto layers = ModelConfig::load(folder).layers;
  for (int layer = 0; layer < layers; ++layer) {
    stack(tensors, "model.layers." + std::to_string(layer) + ".mlp.experts.");
  }
  ASSERT_LT(tensors.size(), before);
  const TempDir stacked;
  stacked.write("config.json", read_file(folder + "/config.json"));
  stacked.write("model.safetensors", bytes_of(tensors));
  const auto logits = [&](const std::string& path) {
    const auto device = open_test_device("cpu");
    Model model = Model::load(path, *device, DType::kF32);
    return prefill_logits(model, golden.tokens, 33);
  };
  EXPECT_EQ(logits(stacked.path()), logits(folder));
}

INSTANTIATE_TEST_SUITE_P(Families, StackedExperts,
                         ::testing::Values("qwen3-5-moe", "qwen3-next", "qwen3-moe"), by_folder);

// Scales of one expert's matrix, and the outputs and inputs on one of them.
struct Fp8Scales {
  int64_t rows, columns;
  int64_t height, width;
};

// Replaces stacked experts by float8 with the scales that `scales_of` names for [N, K], or by the
// same values in f32.
template <typename ScalesOf>
void round(Tensors& tensors, const std::string& name, bool plain, const ScalesOf& scales_of) {
  std::mt19937 random(7);
  const std::vector<int64_t> shape = tensors.at(name).shape;
  const Fp8Scales layout = scales_of(shape[1], shape[2]);
  std::vector<float> scales(static_cast<size_t>(shape[0] * layout.rows * layout.columns));
  for (float& scale : scales) scale = static_cast<float>(random() % 64 + 1) * 0x1p-11f;
  std::string codes;
  std::vector<float> values;
  for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; ++i) {
    const int64_t row = i / shape[2] % shape[1] / layout.height;
    const int64_t at = (i / shape[2] / shape[1] * layout.rows + row) * layout.columns +
                       i % shape[2] / layout.width;
    const auto code = static_cast<uint8_t>(random() % 0x50 | (random() % 2) << 7);
    codes.push_back(static_cast<char>(code));
    values.push_back(f32_from_e4m3(code) * scales[static_cast<size_t>(at)]);
  }
  const auto bytes = [](const std::vector<float>& all) {
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
  };
  if (plain) {
    tensors[name] = {"F32", shape, bytes(values)};
    return;
  }
  tensors[name] = {"F8_E4M3", shape, codes};
  tensors[name + "_scale_inv"] = {"F32", {shape[0], layout.rows, layout.columns}, bytes(scales)};
}

template <typename ScalesOf>
std::vector<float> logits_of_rounded(bool plain, const ScalesOf& scales_of) {
  const std::string folder = golden_dir("qwen3-moe");
  Tensors tensors = parse(read_file(folder + "/model.safetensors"));
  auto config = nlohmann::json::parse(read_file(folder + "/config.json"));
  for (int layer = 0; layer < ModelConfig::load(folder).layers; ++layer) {
    const std::string root = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    stack(tensors, root);
    for (const char* const part : {"gate_up_proj", "down_proj"}) {
      if (tensors.contains(root + part)) round(tensors, root + part, plain, scales_of);
    }
  }
  if (!plain) {
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {16, 32}}};
  }
  const TempDir dir;
  dir.write("config.json", config.dump());
  dir.write("model.safetensors", bytes_of(tensors));
  const auto device = open_test_device("cpu");
  Model model = Model::load(dir.path(), *device, DType::kF32);
  return prefill_logits(model, Golden::load(folder).tokens, 33);
}

TEST(StackedFp8Experts, AreTheirProductsWithScales) {
  const auto blocks = [](int64_t outputs, int64_t inputs) {
    return Fp8Scales{(outputs + 15) / 16, (inputs + 31) / 32, 16, 32};
  };
  const auto each_output = [](int64_t outputs, int64_t inputs) {
    return Fp8Scales{outputs, 1, 1, inputs};
  };
  const auto halves = [](int64_t outputs, int64_t inputs) {
    return Fp8Scales{2, 1, outputs / 2, inputs};
  };
  const auto matrices = [](int64_t outputs, int64_t inputs) {
    return Fp8Scales{1, 1, outputs, inputs};
  };
  EXPECT_EQ(logits_of_rounded(false, blocks), logits_of_rounded(true, blocks));
  EXPECT_EQ(logits_of_rounded(false, each_output), logits_of_rounded(true, each_output));
  EXPECT_EQ(logits_of_rounded(false, halves), logits_of_rounded(true, halves));
  EXPECT_EQ(logits_of_rounded(false, matrices), logits_of_rounded(true, matrices));
  const auto wrong = [](int64_t outputs, int64_t inputs) {
    return Fp8Scales{3, 1, outputs / 3 + 1, inputs};
  };
  try {
    logits_of_rounded(false, wrong);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("down_proj_scale_inv"), HasSubstr("allowed")));
  }
}

}  // namespace
}  // namespace fasa
