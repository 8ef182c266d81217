// Experts stacked in one tensor a layer and kind, as published folders of Qwen have them: the same
// logits as with a tensor an expert.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/llm/llm_fixture.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using namespace llm_test;

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

}  // namespace
}  // namespace fasa
