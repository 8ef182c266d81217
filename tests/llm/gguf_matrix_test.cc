// Blocks of each GGUF type, of any bytes, against the values that the format's own package gives.
#include "runtime/llm/gguf/gguf_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/io/mapped_file.h"
#include "tests/support/source_path.h"

namespace fasa {
namespace {

class GgufMatrixTest : public ::testing::Test {
 protected:
  const GgufTensor& tensor(const std::string& name) const { return header_.tensors().at(name); }
  std::vector<float> values(const std::string& name) const {
    const GgufTensor& values = tensor(name + ".values");
    std::vector<float> all(values.bytes / sizeof(float));
    std::memcpy(all.data(), values.data, values.bytes);
    return all;
  }
  // Calls with the name and the matrix of each packed type.
  template <typename Call>
  void each(const Call& call) const {
    int types = 0;
    for (const auto& [name, tensor] : header_.tensors()) {
      if (tensor.block->elements == 1) continue;
      SCOPED_TRACE(name);
      EXPECT_EQ(tensor.block->name, name);
      call(name, *make_gguf_matrix(tensor, {}));
      ++types;
    }
    EXPECT_EQ(types, 15);
  }

 private:
  MappedFile file_{source_path("tests/golden/gguf-blocks.gguf")};
  GgufHeader header_{file_.bytes(), "gguf-blocks.gguf"};
};

TEST_F(GgufMatrixTest, UnpacksToTheFormatsValues) {
  each([&](const std::string& name, const PackedTensor& matrix) {
    const std::vector<float> expected = values(name);
    std::vector<float> unpacked(expected.size());
    matrix.dequantise(0, matrix.outputs(), unpacked.data());
    EXPECT_EQ(unpacked, expected);
  });
}

// Panels hold the same numbers: nothing is rounded on the way to the kernels.
TEST_F(GgufMatrixTest, PanelsHoldThemExactly) {
  each([&](const std::string& name, const PackedTensor& matrix) {
    const std::vector<float> expected = values(name);
    const PackedFormat& format = matrix.format();
    const PackedPanel layout(format, matrix.places());
    std::vector<std::byte> panel(static_cast<size_t>(layout.bytes));
    CodeRows rows(format, matrix.places(), matrix.outputs());
    matrix.read(0, matrix.outputs(), &rows);
    for (int64_t row = 0; row < matrix.outputs(); ++row) {
      pack_row(format, layout, rows.row(row), row, panel.data());
    }
    for (int64_t i = 0; i < matrix.outputs() * matrix.inputs(); ++i) {
      const int64_t row = i / matrix.inputs();
      const int64_t place = i % matrix.inputs();
      const GroupNumbers numbers =
          packed_numbers(format, layout, panel.data(), row, place / format.group);
      const float value = format.value(packed_code(format, layout, panel.data(), row, place));
      ASSERT_EQ(numbers.scale * value + numbers.offset, expected[static_cast<size_t>(i)]) << i;
    }
  });
}

// Bits of a weight in memory.
TEST_F(GgufMatrixTest, TakesMemoryInProportionToTheFile) {
  const std::map<std::string, double> bits = {
      {"IQ4_NL", 4.5},   {"IQ4_XS", 4.3125},  {"Q3_K", 3.5625}, {"Q2_K", 2.625},
      {"IQ3_S", 4.3125}, {"IQ3_XXS", 4.3125}, {"Q4_K", 4.625},  {"Q6_K", 6.5625}};
  each([&](const std::string& name, const PackedTensor& matrix) {
    if (!bits.contains(name)) return;
    constexpr int64_t kInputs = 4096;
    const PackedPanel panel(matrix.format(), kInputs);
    EXPECT_EQ(static_cast<double>(panel.bytes * 8) / (kPackedColumns * kInputs), bits.at(name));
  });
}

TEST(GgmlTypes, HaveNames) {
  const auto text = [](uint32_t type) { return ggml_type_text(static_cast<GgmlType>(type)); };
  EXPECT_EQ(text(23), "IQ4_XS");
  EXPECT_EQ(text(16), "IQ2_XXS");
  EXPECT_EQ(text(40), "NVFP4");
  EXPECT_EQ(text(140), "IQ5_K (of ik_llama.cpp)");
  EXPECT_EQ(text(142), "142 (of another engine)");
  EXPECT_EQ(text(4'000'000'000u), "4000000000 (of another engine)");
}

}  // namespace
}  // namespace fasa
