// Files that are valid, truncated or inconsistent.
#include "runtime/llm/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "runtime/base/error.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using llm_test::safetensors_bytes;
using llm_test::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The message of the InputError that opening a file of these bytes gives.
std::string error_of(const std::string& bytes) {
  const TempDir dir;
  dir.write("model.safetensors", bytes);
  try {
    const WeightFiles files(dir.path());
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.safetensors"));
    return error.what();
  }
  return "no error";
}

const char* const kTwo = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}})";

TEST(SafetensorsTest, ReadsF32F16AndBf16AtAnyAlignment) {
  const TempDir dir;
  // The one-byte tensor misaligns the tensors after it.
  const std::string header = R"({"byte":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},)"
                             R"("y":{"dtype":"F16","shape":[2],"data_offsets":[9,13]},)"
                             R"("z":{"dtype":"BF16","shape":[2,1],"data_offsets":[13,17]}})";
  std::string data(1, 'b');
  const float x[] = {1.5f, -0.1f};
  const uint16_t y[] = {0x3c00, 0xc000};
  const uint16_t z[] = {0x3f80, 0x4040};
  data.append(reinterpret_cast<const char*>(x), 8);
  data.append(reinterpret_cast<const char*>(y), 4);
  data.append(reinterpret_cast<const char*>(z), 4);
  dir.write("model.safetensors", safetensors_bytes(header, data));
  const WeightFiles files(dir.path());
  const int64_t two[] = {2};
  const int64_t two_one[] = {2, 1};
  float out[2];
  files.require("x", two).read(0, 2, out);
  EXPECT_EQ(out[1], -0.1f);
  uint16_t rounded[2];
  files.require("x", two).read_bf16(0, 2, rounded);
  EXPECT_EQ(rounded[1], bf16_from_f32(-0.1f));
  files.require("y", two).read(0, 2, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  files.require("z", two_one).read(1, 1, out);
  EXPECT_EQ(out[0], 3.0f);
  EXPECT_THROW(files.require("byte", std::vector<int64_t>{1}), InputError);
}

TEST(SafetensorsTest, EveryCutIsAnError) {
  const std::string whole = safetensors_bytes(kTwo, std::string(12, 'x'));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(error_of(whole.substr(0, size)), "no error") << size;
  }
  EXPECT_EQ(error_of(whole), "no error");
  EXPECT_THAT(error_of(whole + "x"), HasSubstr("end at byte 12"));
}

TEST(SafetensorsTest, HeadersThatLie) {
  const std::string data(12, 'x');
  EXPECT_THAT(error_of(safetensors_bytes(kTwo, data, uint64_t{1} << 60)),
              HasSubstr("1152921504606846976 bytes"));
  EXPECT_THAT(error_of(safetensors_bytes(kTwo, data, UINT64_MAX)), HasSubstr("header"));
  EXPECT_THAT(error_of(safetensors_bytes("[1]", "")), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(safetensors_bytes("{\"a\":", "")), HasSubstr("invalid JSON"));
  const auto one = [&](const std::string& entry) {
    return error_of(safetensors_bytes("{\"a\":" + entry + "}", data));
  };
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"),
              AllOf(HasSubstr("a.data_offsets = [0, 16]"), HasSubstr("beyond")));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,12]})"), HasSubstr("need 16"));
  EXPECT_THAT(one(R"({"dtype":"F16","shape":[3],"data_offsets":[0,12]})"), HasSubstr("need 6"));
  EXPECT_THAT(one(R"({"dtype":"Q4","shape":[3],"data_offsets":[0,12]})"), HasSubstr("a.dtype"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[-3],"data_offsets":[0,12]})"), HasSubstr("a.shape"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
              HasSubstr("a.shape"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[3],"data_offsets":[12,0]})"),
              HasSubstr("a.data_offsets"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"), HasSubstr("gap"));
  EXPECT_THAT(one("7"), HasSubstr("a. is not a JSON object"));
  EXPECT_THAT(
      error_of(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                 R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                                 data)),
      AllOf(HasSubstr("b begins"), HasSubstr("overlap")));
}

TEST(SafetensorsTest, MissingTensorsAndWrongShapesAreNamed) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_bytes(kTwo, std::string(12, 'x')));
  const WeightFiles files(dir.path());
  try {
    files.require("model.norm.weight", std::vector<int64_t>{7});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.norm.weight is missing"), HasSubstr("[7]")));
  }
  try {
    files.require("b", std::vector<int64_t>{2, 1});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("[1, 2]"), HasSubstr("[2, 1]")));
  }
}

TEST(SafetensorsTest, IndexesThatLie) {
  const TempDir dir;
  EXPECT_THROW(WeightFiles(dir.path()), InputError);
  dir.write("part.safetensors", safetensors_bytes(kTwo, std::string(12, 'x')));
  const auto error = [&](const std::string& index) {
    dir.write("model.safetensors.index.json", index);
    try {
      const WeightFiles files(dir.path());
      EXPECT_TRUE(files.has("a"));
      EXPECT_TRUE(files.has("b"));  // of a file that the index names
      EXPECT_FALSE(files.has("c"));
      return std::string();
    } catch (const InputError& caught) {
      return std::string(caught.what());
    }
  };
  EXPECT_EQ(error(R"({"weight_map":{"a":"part.safetensors"}})"), "");
  EXPECT_EQ(error(R"({"weight_map":{"c":"part.safetensors"}})"), "");
  EXPECT_THAT(error(R"({"weight_map":{"a":"none.safetensors"}})"), HasSubstr("none.safetensors"));
  EXPECT_THAT(error(R"({"weight_map":{"a":"../part.safetensors"}})"),
              HasSubstr("not the name of a file"));
  EXPECT_THAT(error(R"({"weight_map":{"a":3}})"), HasSubstr("weight_map.a"));
  EXPECT_THAT(error(R"({"weight_map":[]})"), HasSubstr("weight_map"));
  EXPECT_THAT(error("{"), HasSubstr("invalid JSON"));
}

// As in transformers: the files of an index count, not where it places a tensor in them.
TEST(SafetensorsTest, IndexesThatPlaceTensorsElsewhere) {
  const TempDir dir;
  constexpr const char* kOne = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  constexpr const char* kOther = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  dir.write("one.safetensors", safetensors_bytes(kOne, "aaaa"));
  dir.write("two.safetensors", safetensors_bytes(kOther, "bbbb"));
  dir.write(
      "model.safetensors.index.json",
      R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors","c":"one.safetensors"}})");
  const WeightFiles files(dir.path());
  EXPECT_EQ(files.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(static_cast<char>(*files.require("b", std::vector<int64_t>{1}).data), 'b');
}

TEST(SafetensorsTest, AWholeFileBesideAnIndexOfMissingFiles) {
  const TempDir dir;
  dir.write("model.safetensors.index.json", R"({"weight_map":{"a":"part.safetensors"}})");
  try {
    const WeightFiles files(dir.path());
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("part.safetensors"), HasSubstr("is missing")));
  }
  dir.write("model.safetensors", safetensors_bytes(kTwo, std::string(12, 'x')));
  EXPECT_TRUE(WeightFiles(dir.path()).has("a"));
}

TEST(SafetensorsTest, OtherFilesAreNamed) {
  const auto error = [](const char* name, const std::string& bytes) {
    const TempDir dir;
    dir.write(name, bytes);
    try {
      const WeightFiles files(dir.path());
      return std::string();
    } catch (const InputError& caught) {
      return std::string(caught.what());
    }
  };
  EXPECT_THAT(error("pytorch_model.bin", "PK"), HasSubstr("convert it to safetensors"));
  EXPECT_THAT(error("consolidated.safetensors", "x"), HasSubstr("the makers' own layout"));
  EXPECT_THAT(error("model-00001-of-00002.safetensors", "x"), HasSubstr("fetch the index"));
  EXPECT_THAT(error("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid x\n"),
              HasSubstr("a Git LFS pointer"));
  EXPECT_THAT(error("model.safetensors", "<!DOCTYPE html><html></html>"), HasSubstr("HTML"));
}

}  // namespace
}  // namespace fasa
