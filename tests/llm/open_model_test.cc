// A model opened in one call gives the answers of one assembled by hand, and finds the FC map in
// its folder.
#include "runtime/llm/compute/open_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/llm/generation/generator.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;
using ::testing::HasSubstr;

Config config_on(const std::string& device, SlicePreset slice = SlicePreset::kDefault) {
  Config config;
  config.device.name = device;
  config.selection.fac_tokens = {{.tokens = 48, .share = 0}};
  config.selection.slice = slice;
  return config;
}

std::vector<int32_t> some_prompt() {
  std::vector<int32_t> prompt(300);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(97 + i * i % 23);
  return prompt;
}

std::vector<int32_t> answer(Model& model, Runtime& runtime) {
  GenerateOptions options;
  options.max_tokens = 8;
  return generate(model, runtime, some_prompt(), options, nullptr).tokens;
}

// A copy of the bundled model without its map.
class Mapless {
 public:
  Mapless() : path_(std::filesystem::path(::testing::TempDir()) / "mapless-model") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    for (const auto& file : std::filesystem::directory_iterator(bundled_dir())) {
      if (file.path().filename() == "fc_map.json") continue;
      std::filesystem::create_symlink(std::filesystem::canonical(file.path()),
                                      path_ / file.path().filename());
    }
  }
  ~Mapless() { std::filesystem::remove_all(path_); }
  Mapless(const Mapless&) = delete;
  Mapless& operator=(const Mapless&) = delete;
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

TEST(OpenModelTest, AnswersAsOnePutTogetherByHand) {
  for (const char* name : {"cpu", "emulated"}) {
    SCOPED_TRACE(name);
    const Config config = config_on(name);
    OpenModel opened = open_model(bundled_dir(), config);
    EXPECT_EQ(opened.device->name(), name);
    EXPECT_EQ(opened.slices.map, usual_map(bundled_dir()));
    const auto runtime = opened.make_runtime(400);

    const auto device = open_test_device(name);
    Model model = Model::load(bundled_dir(), *device, std::nullopt);
    const Geometry geometry = model.config().geometry();
    const FcMap map = FcMap::load(usual_map(bundled_dir()));
    Runtime by_hand(*device, config, geometry, model.config().row_dtype(),
                    map.slice_dims(geometry.chunks()), 400);
    EXPECT_EQ(answer(opened.model, *runtime), answer(model, by_hand));
  }
}

TEST(OpenModelTest, SlicesOverSomeChunksTakeTheMapBesideTheModel) {
  OpenModel lean = open_model(bundled_dir(), config_on("cpu", SlicePreset::kLean));
  const Geometry geometry = lean.model.config().geometry();
  const FcMap map = FcMap::load(usual_map(bundled_dir()));
  EXPECT_EQ(lean.slices.dims, map.slice_dims(geometry.chunks() / 2));
  EXPECT_EQ(answer(lean.model, *lean.make_runtime()).size(), 8u);
}

TEST(OpenModelTest, WithoutAMapItTakesAllChunksOrSaysWhatMakesOne) {
  const Mapless mapless;
  const OpenModel whole = open_model(mapless.path(), config_on("cpu"));
  EXPECT_EQ(whole.slices.map, "");
  EXPECT_EQ(whole.slices.dims, all_slice_dims(whole.model.config().geometry()));
  try {
    open_model(mapless.path(), config_on("cpu", SlicePreset::kLean));
    FAIL() << "slices over half of the chunks need a map";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("fc_map.json does not exist"));
    EXPECT_THAT(error.what(), HasSubstr("16 of 32"));
    EXPECT_THAT(error.what(), HasSubstr("fasa calibrate"));
  }
}

TEST(OpenModelTest, RefusesWhatIsNoConfigForThisModel) {
  Config config = config_on("cpu");
  config.selection.dense_layers = {4};
  EXPECT_THROW(open_model(bundled_dir(), config), UsageError);
  EXPECT_THROW(open_model(source_path("no-such-model"), config_on("cpu")), InputError);
}

}  // namespace
}  // namespace fasa
