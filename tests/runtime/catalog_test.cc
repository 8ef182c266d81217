// The catalog: GPUs and models by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/catalog/gpu_catalog.h"
#include "runtime/config/config.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(GpuCatalog, FindsNamesAsPeopleTypeThem) {
  for (const char* name : {"RTX 4060 Ti 16GB", "rtx-4060-ti-16gb", "4060ti-16gb",
                           "NVIDIA GeForce RTX 4060 Ti 16GB", "geforce_rtx_4060_ti_16gb"}) {
    EXPECT_EQ(find_gpu(name).name, "RTX 4060 Ti 16GB") << name;
  }
  EXPECT_EQ(find_gpu("rtx 4090").name, "RTX 4090");
  EXPECT_EQ(find_gpu("RTX 4090 24GB").name, "RTX 4090");
  EXPECT_EQ(find_gpu("h200").memory_bandwidth, 4.8e12);
  EXPECT_EQ(find_gpu("t4").compute_capability, 75);
  EXPECT_EQ(find_gpu("h200").compute_capability, 80);
  EXPECT_EQ(find_gpu("a100-80gb").name, "A100 80GB");
}

TEST(GpuCatalog, AnUnknownNameGetsTheNearest) {
  EXPECT_THAT(error_of([] { find_gpu("RTX 4091"); }), HasSubstr("RTX 4090"));
  EXPECT_THAT(error_of([] { find_gpu("h100"); }), HasSubstr("nearest: H100"));
  EXPECT_THAT(error_of([] { find_gpu(""); }), HasSubstr("nearest"));
  EXPECT_THAT(error_of([] { find_gpu(std::string(100000, 'x')); }), HasSubstr("nearest"));
  const std::string ambiguous = error_of([] { find_gpu("rtx 4060 ti"); });
  EXPECT_THAT(ambiguous, HasSubstr("RTX 4060 Ti 8GB"));
  EXPECT_THAT(ambiguous, HasSubstr("RTX 4060 Ti 16GB"));
}

TEST(GpuCatalog, EveryEntryIsFoundByItsOwnName) {
  for (const Gpu& gpu : gpus()) {
    EXPECT_EQ(find_gpu(gpu.name).name, gpu.name);
    EXPECT_GE(gpu.memory_bytes, uint64_t{7} << 30) << gpu.name;
    EXPECT_GE(gpu.memory_bandwidth, 250e9) << gpu.name;
    EXPECT_GE(gpu.tensor_flops, 20e12) << gpu.name;
    EXPECT_GE(gpu.link_bandwidth(), 12e9) << gpu.name;
    EXPECT_LE(gpu.link_bandwidth(), 51e9) << gpu.name;
  }
  EXPECT_NEAR(find_gpu("RTX 4090").link_bandwidth(), 25.2e9, 1e8);
}

TEST(GpuCatalog, TheEmulatedDeviceTakesItsMemoryAndLink) {
  Config config;
  config.device.gpu = "rtx-4060-ti-16gb";
  config.validate();
  DeviceOptions options = config.device_options();
  EXPECT_EQ(options.memory_bandwidth, 288e9);
  EXPECT_EQ(options.link_bandwidth, find_gpu(config.device.gpu).link_bandwidth());
  EXPECT_EQ(options.link_latency, 10e-6);
  EXPECT_FALSE(options.device_memory.has_value());
  config.link.bandwidth = 3e9;
  options = config.device_options();
  EXPECT_EQ(options.link_bandwidth, 3e9);
}

TEST(GpuCatalog, AnUnknownGpuIsAConfigError) {
  Config config;
  config.device.gpu = "RTX 9999";
  try {
    config.validate();
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "device.gpu");
    EXPECT_THAT(error.what(), HasSubstr("nearest"));
  }
}

TEST(GeometryCatalog, KnownModelsWeighWhatIsKnown) {
  const std::pair<const char*, double> billions[] = {
      {"Llama-2-7B", 6.74},      {"Llama-3.1-8B", 8.03},      {"llama 3.1 70b", 70.55},
      {"Llama-3.1-405B", 405.8}, {"llama-3.2-1b", 1.24},      {"Llama-3.2-3B", 3.21},
      {"Mistral-7B", 7.25},      {"Mistral-Nemo-12B", 12.25}, {"Mistral-Small-24B", 23.57},
      {"Qwen2.5-0.5B", 0.494},   {"Qwen2.5-1.5B", 1.54},      {"Qwen2.5-3B", 3.09},
      {"qwen2.5_7b", 7.62},      {"Qwen2.5-14B", 14.77},      {"Qwen2.5-32B", 32.76},
      {"Qwen2.5-72B", 72.71},    {"Qwen3-0.6B", 0.596},       {"Qwen3-1.7B", 1.72},
      {"Qwen3-4B", 4.02},        {"Qwen3-8B", 8.19},          {"Qwen3-14B", 14.77},
      {"Qwen3-32B", 32.76},      {"Qwen2.5-7B-1M", 7.62},     {"gpt-oss-20b", 20.9},
      {"gpt-oss-120b", 116.8},   {"Ministral-3-8B", 8.49},    {"Gemma-4-31B", 30.7},
      {"Gemma-4-26B-A4B", 25.2}};
  for (const auto& [name, expected] : billions) {
    const double found = static_cast<double>(find_model_shape(name).parameters()) / 1e9;
    EXPECT_NEAR(found, expected, 0.004 * expected) << name;
  }
}

TEST(GeometryCatalog, EveryEntryIsPossible) {
  for (const ModelShape& shape : model_shapes()) {
    EXPECT_NO_THROW(shape.geometry.validate()) << shape.name;
    EXPECT_EQ(&find_model_shape(shape.name), &shape);
    EXPECT_GE(shape.max_positions, 4096) << shape.name;
  }
  EXPECT_THAT(error_of([] { find_model_shape("llama-3.1-9b"); }), HasSubstr("Llama-3.1-8B"));
}

// A token reads 3.6 billion parameters of gpt-oss-20b, and every other layer has a window.
TEST(GeometryCatalog, ModelsWithExpertsAndWindows) {
  const ModelShape& shape = find_model_shape("gpt-oss-20b");
  const int64_t read = shape.parameters() - shape.idle_parameters - shape.hidden * shape.vocab;
  EXPECT_NEAR(static_cast<double>(read) / 1e9, 3.6, 0.05);
  ASSERT_EQ(shape.geometry.windows.size(), 24u);
  EXPECT_EQ(shape.geometry.windows[0], 128);
  EXPECT_EQ(shape.geometry.windows[1], 0);
  EXPECT_EQ(shape.geometry.windows[23], 0);
}

// 2.3 and 4.5 billion parameters without the embeddings per layer, of which only a row is read.
TEST(GeometryCatalog, ModelsThatShareKeysAndValues) {
  const ModelShape& small = find_model_shape("Gemma-4-E2B");
  EXPECT_NEAR(static_cast<double>(small.device_parameters()) / 1e9, 2.3, 0.05);
  EXPECT_EQ(small.layer_embeddings, int64_t{262144} * 35 * 256);
  EXPECT_EQ(small.geometry.storing_layers(), 15);
  EXPECT_EQ(small.geometry.kv_layer(34), 14);
  EXPECT_EQ(small.geometry.kv_layer(33), 13);
  const ModelShape& large = find_model_shape("Gemma-4-E4B");
  EXPECT_NEAR(static_cast<double>(large.device_parameters()) / 1e9, 4.5, 0.2);
  EXPECT_EQ(large.geometry.storing_layers(), 24);
  EXPECT_EQ(large.geometry.kv_layer(41), 23);
}

// Layers without rows count in the weights, and their state beside the geometry.
TEST(GeometryCatalog, ModelsWithLinearAttention) {
  const ModelShape& dense = find_model_shape("Qwen3.5-9B");
  EXPECT_NEAR(static_cast<double>(dense.parameters()) / 1e9, 8.95, 0.05);
  EXPECT_EQ(dense.geometry.layers, 8);
  EXPECT_EQ(dense.geometry.linear.layers, 24);
  const ModelShape& experts = find_model_shape("Qwen3.5-35B-A3B");
  EXPECT_NEAR(static_cast<double>(experts.parameters()) / 1e9, 34.7, 0.5);
  const int64_t read =
      experts.parameters() - experts.idle_parameters - experts.hidden * experts.vocab;
  EXPECT_NEAR(static_cast<double>(read) / 1e9, 3, 0.3);
}

TEST(ModelShape, WeightBytes) {
  EXPECT_EQ(weight_bytes(6400, 16), 12800u);
  EXPECT_EQ(weight_bytes(6400, 8), 6400u + 200);  // 100 scales
  EXPECT_EQ(weight_bytes(6400, 4), 3200u + 200);
  // The input embeddings stay on the host; tied embeddings count for the output head.
  const ModelShape& untied = find_model_shape("Llama-3.1-8B");
  EXPECT_EQ(untied.parameters() - untied.device_parameters(), untied.hidden * untied.vocab);
  const ModelShape& tied = find_model_shape("Llama-3.2-1B");
  EXPECT_EQ(tied.parameters(), tied.device_parameters());
}

}  // namespace
}  // namespace fasa
