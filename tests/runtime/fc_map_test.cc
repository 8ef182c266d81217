// FC maps: the file format, errors for broken files, and the check of the map's model.
#include "runtime/calibrate/fc_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/io/output_file.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two layers of one KV head with six dimensions, four of them rotated (half): FCs (0,2) and (1,3),
// and 4 and 5 as single dimensions.
FcMap small_map() {
  FcMap map;
  map.objective = "distant_attention";
  map.data_hash = "fnv1a:0123456789abcdef";
  map.sinks = 4;
  map.recent = 16;
  map.window = 64;
  map.tokens = 1000;
  map.queries = 96;
  map.fingerprint = {.model_type = "llama",
                     .layers = 2,
                     .kv_heads = 1,
                     .query_heads = 2,
                     .key_dim = 6,
                     .value_dim = 6,
                     .rotary_dims = 4,
                     .rotary_layout = "half",
                     .rope_theta = 10000,
                     .rope_scaling = "",
                     .key_rows = {"00ff", "12ab"}};
  map.heads = {{{{{1, 3}, {4}, {0, 2}, {5}}, {0.25, 0.5, 0.125, 0}, {0.5, 0.75, 1, 1}}},
               {{{{5}, {4}, {1, 3}, {0, 2}}, {0, 0.5, 1, 0.5}, {0.25, 1, 1, 1}}}};
  return map;
}

std::string input_error(const std::string& text) {
  try {
    FcMap::parse(text, "some/map.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("fasa_fc_map_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string at(const std::string& name) const { return (path_ / name).string(); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

TEST(FcMap, WhatIsSavedIsLoaded) {
  const Folder folder;
  const FcMap map = small_map();
  map.save(folder.at("map.json"));
  EXPECT_EQ(FcMap::load(folder.at("map.json")), map);
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(FcMap::parse(map.to_json(), "x").to_json(), map.to_json());
}

TEST(FcMap, SliceDimensionsInOrder) {
  EXPECT_THAT(small_map().slice_dims(1), ::testing::ElementsAre(1, 3, 5, 4));
  // (0,2) would be split, so 5 comes first.
  EXPECT_THAT(small_map().slice_dims(2), ::testing::ElementsAre(1, 3, 4, 5, 5, 4, 1, 3));
  EXPECT_THAT(small_map().slice_dims(3),
              ::testing::ElementsAre(1, 3, 4, 5, 0, 2, 5, 4, 1, 3, 0, 2));
  EXPECT_THROW(small_map().slice_dims(0), UsageError);
  EXPECT_THROW(small_map().slice_dims(4), UsageError);
}

// Pairs of the most energy go first among those in the slice; without energies the order stays.
TEST(FcMap, FineChunksAreThoseOfTheMostEnergy) {
  FcMap map = small_map();
  EXPECT_THAT(map.slice_dims(2, 1), map.slice_dims(2));
  map.heads[0][0].energy = {0.3, 0.1, 0.3, 0.0, 0.2, 0.1};
  map.heads[1][0].energy = {0.5, 0.1, 0.5, 0.2, 0.0, 0.0};
  EXPECT_EQ(FcMap::parse(map.to_json(), "x"), map);
  EXPECT_THAT(map.slice_dims(3), small_map().slice_dims(3));
  EXPECT_THAT(map.slice_dims(3, 1), ::testing::ElementsAre(0, 2, 1, 3, 4, 5, 0, 2, 5, 4, 1, 3));
  EXPECT_THAT(map.slice_dims(2, 1), ::testing::ElementsAre(4, 5, 1, 3, 1, 3, 5, 4));
  EXPECT_THROW(map.slice_dims(2, 3), UsageError);
  EXPECT_THROW(map.slice_dims(2, -1), UsageError);
}

TEST(FcMap, AllSliceDimensionsFollowTheLayout) {
  Geometry geometry;
  geometry.layers = 1;
  geometry.kv_heads = 2;
  geometry.key_dim = 6;
  geometry.rotary_dims = 4;
  EXPECT_THAT(all_slice_dims(geometry), ::testing::ElementsAre(0, 2, 1, 3, 4, 5, 0, 2, 1, 3, 4, 5));
  geometry.rotary_layout = RotaryLayout::kInterleaved;
  EXPECT_THAT(all_slice_dims(geometry), ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5));
}

TEST(FcMap, AnotherModelsMapSaysWhichFieldDiffers) {
  const FcMap map = small_map();
  EXPECT_NO_THROW(map.require_fits(map.fingerprint, "m.json"));
  const auto differs = [&](auto change, std::vector<std::string> parts) {
    ModelFingerprint model = map.fingerprint;
    change(model);
    try {
      map.require_fits(model, "m.json");
      ADD_FAILURE() << "accepted: " << parts.front();
    } catch (const InputError& error) {
      parts.push_back("m.json");
      for (const auto& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  differs([](auto& m) { m.model_type = "qwen3"; }, {"model_type", "llama", "qwen3"});
  differs([](auto& m) { m.layers = 3; }, {"layers is 2", "3 in the model"});
  differs([](auto& m) { m.kv_heads = 2; }, {"kv_heads"});
  differs([](auto& m) { m.query_heads = 4; }, {"query_heads"});
  differs([](auto& m) { m.key_dim = 8; }, {"key_dim"});
  differs([](auto& m) { m.value_dim = 8; }, {"value_dim"});
  differs([](auto& m) { m.rotary_dims = 6; }, {"rotary_dims"});
  differs([](auto& m) { m.rotary_layout = "interleaved"; }, {"rotary_layout"});
  differs([](auto& m) { m.rope_theta = 500000; }, {"rope_theta", "10000", "500000"});
  differs([](auto& m) { m.rope_scaling = "yarn"; }, {"rope_scaling", "''", "'yarn'"});
  differs([](auto& m) { m.key_rows.pop_back(); }, {"number of key_rows"});
  differs([](auto& m) { m.key_rows[1] = "12ac"; }, {"key_rows[1]", "12ab", "12ac"});
  differs([](auto& m) { m.key_rows[0] = "00ff00"; }, {"key_rows[0]"});
}

TEST(FcMap, BrokenFilesNameThePlace) {
  EXPECT_THAT(input_error(""), HasSubstr("some/map.json"));
  EXPECT_THAT(input_error("{\"schema\": 1,"), HasSubstr("invalid JSON"));
  EXPECT_THAT(input_error("[1]"), HasSubstr("a JSON object"));
  EXPECT_THAT(input_error("{\"schema\": 1e999}"), HasSubstr("invalid JSON"));
  const auto broken = [](auto change) {
    json file = json::parse(small_map().to_json());
    change(file);
    return input_error(file.dump());
  };
  EXPECT_EQ(broken([](json&) {}), "no error");
  EXPECT_THAT(broken([](json& f) { f["schema"] = 1; }), HasSubstr("schema = 1: allowed: 2"));
  EXPECT_THAT(broken([](json& f) { f.erase("objective"); }), HasSubstr("objective is missing"));
  EXPECT_THAT(broken([](json& f) { f["extra"] = 1; }), HasSubstr("extra is unknown"));
  EXPECT_THAT(broken([](json& f) { f["objective"] = "best"; }),
              AllOf(HasSubstr("objective = \"best\""), HasSubstr("distant_attention")));
  EXPECT_THAT(broken([](json& f) { f["sinks"] = -1; }), HasSubstr("sinks = -1"));
  EXPECT_THAT(broken([](json& f) { f["sinks"] = 1.5; }), HasSubstr("sinks = 1.5"));
  EXPECT_THAT(broken([](json& f) { f["tokens"] = uint64_t{1} << 63; }), HasSubstr("tokens"));
  EXPECT_THAT(broken([](json& f) { f["probes"] = 1; }), HasSubstr("true or false"));
  EXPECT_THAT(broken([](json& f) { f["model"]["layers"] = 1000000000; }),
              HasSubstr("model.layers"));
  EXPECT_THAT(broken([](json& f) {
                f["model"]["query_heads"] = 3;
                f["model"]["kv_heads"] = 2;
              }),
              HasSubstr("model.query_heads = 3: allowed: a multiple"));
  EXPECT_THAT(broken([](json& f) { f["model"]["key_dim"] = 7; }), HasSubstr("model.key_dim"));
  EXPECT_THAT(broken([](json& f) { f["model"]["key_rows"][1] = "xy"; }),
              HasSubstr("model.key_rows[1]"));
  EXPECT_THAT(broken([](json& f) { f["heads"].erase(1); }), HasSubstr("a list of 2"));
  EXPECT_THAT(broken([](json& f) { f["heads"][1] = json::array(); }), HasSubstr("heads[1]"));
  EXPECT_THAT(broken([](json& f) {
                f["heads"][0][0]["energy"] = {0.5, 0.5};
              }),
              HasSubstr("heads[0][0].energy"));
  EXPECT_THAT(
      broken([](json& f) {
        f["slice"] = {{"dtype", "int4"}, {"tip_chunks", 2}, {"fine_chunks", 1}, {"bytes", 9}};
      }),
      HasSubstr("slice.fine_chunks = 1: allowed: a whole number from 0 to 0"));
  EXPECT_THAT(broken([](json& f) { f["heads"][0][0]["agreement"].erase(0); }),
              HasSubstr("heads[0][0].agreement"));
  EXPECT_THAT(broken([](json& f) { f["heads"][0][0]["distant_attention_kept"][2] = nullptr; }),
              HasSubstr("heads[0][0].distant_attention_kept[2] = null"));
}

TEST(FcMap, ChunksMustBeTheModelsPairsEachOnce) {
  const auto chunk = [](json value) {
    json file = json::parse(small_map().to_json());
    file["heads"][1][0]["chunks"][2] = std::move(value);  // was [1, 3], after [5] and [4]
    return input_error(file.dump());
  };
  EXPECT_THAT(chunk(json::array({4})),
              AllOf(HasSubstr("heads[1][0].chunks[2] = [4]"), HasSubstr("once")));
  EXPECT_THAT(chunk({0, 2}), HasSubstr("chunks[3] = [0,2]: allowed: each chunk once"));
  EXPECT_THAT(chunk({1, 2}), HasSubstr("allowed: [1, 3]"));
  EXPECT_THAT(chunk({3, 1}), HasSubstr("chunks[2]"));
  EXPECT_THAT(chunk({1, 6}), HasSubstr("chunks[2][1] = 6"));
  EXPECT_THAT(chunk(json::array({1})), HasSubstr("a list of 2"));
  EXPECT_THAT(chunk(1), HasSubstr("a list of one or two"));
  EXPECT_THAT(chunk(json::array()), HasSubstr("a list of one or two"));
  json file = json::parse(small_map().to_json());
  file["heads"][1][0]["chunks"][0] = {5, 4};
  EXPECT_THAT(input_error(file.dump()), HasSubstr("a dimension that RoPE does not rotate"));
}

TEST(FcMap, FilesThatCannotBeRead) {
  const Folder folder;
  EXPECT_THROW(FcMap::load(folder.at("none.json")), InputError);
  std::ofstream(folder.at("cut.json")) << small_map().to_json().substr(0, 200);
  EXPECT_THROW(FcMap::load(folder.at("cut.json")), InputError);
  EXPECT_THROW(FcMap::load(folder.at(".")), InputError);
}

TEST(OutputFile, BadPathsAreFoundBeforeTheWork) {
  const Folder folder;
  const auto bad = [](const std::string& path) {
    EXPECT_THROW(check_writable(path), UsageError) << path;
    EXPECT_THROW(small_map().save(path), UsageError) << path;
  };
  bad(folder.at("missing/map.json"));
  bad(folder.at("."));
  bad("");
  EXPECT_NO_THROW(check_writable(folder.at("map.json")));
  EXPECT_EQ(folder.files(), 0u);
}

TEST(OutputFile, AFailedWriteLeavesTheOldFile) {
  const Folder folder;
  write_file_atomically(folder.at("map.json"), "old");
  EXPECT_THROW(write_file_atomically(folder.at("map.json/below"), "new"), UsageError);
  write_file_atomically(folder.at("other.json"), "");
  std::ifstream file(folder.at("map.json"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "old");
  EXPECT_EQ(fs::file_size(folder.at("other.json")), 0u);
  EXPECT_EQ(folder.files(), 2u);
}

}  // namespace
}  // namespace fasa
