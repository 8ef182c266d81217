#include "runtime/config/config_load.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "runtime/config/renamed_keys.h"
#include "tests/support/source_path.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string toml_error(const std::string& toml) {
  return message_of([&] { load_config({.toml = toml, .toml_name = "f.toml"}); });
}

const ConfigOption* option_at(const std::string& path) {
  for (const ConfigOption& option : config_options()) {
    if (option.path() == path) return &option;
  }
  return nullptr;
}

// A temporary file, removed by the destructor.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(::testing::TempDir() + "/fasa_config_load_test.toml") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ConfigTable, NamesAreUniqueAndEveryKeyOfTheDesignIsThere) {
  std::set<std::string> paths, flags, variables;
  for (const ConfigOption& option : config_options()) {
    EXPECT_TRUE(paths.insert(option.path()).second) << option.path();
    EXPECT_TRUE(flags.insert(option.flag_name()).second) << option.flag_name();
    EXPECT_TRUE(variables.insert(option.variable()).second) << option.variable();
    EXPECT_FALSE(option.help.empty()) << option.path();
    EXPECT_FALSE(option.allowed.empty()) << option.path();
  }
  for (const char* path : {"preset",
                           "device.name",
                           "device.threads",
                           "device.numa",
                           "memory.device_memory",
                           "memory.host_memory",
                           "memory.pinned_memory",
                           "selection.kind",
                           "selection.slice",
                           "selection.slice_dtype",
                           "selection.tip_chunks",
                           "selection.fac_tokens",
                           "selection.sinks",
                           "selection.recent",
                           "selection.dense_layers",
                           "selection.map",
                           "placement.rows",
                           "placement.row_dtype",
                           "placement.hot_rows",
                           "prefetch.streams",
                           "link.bandwidth",
                           "link.latency"}) {
    EXPECT_TRUE(paths.count(path)) << path;
  }
  EXPECT_EQ(option_at("device.name")->flag_name(), "--device");
  EXPECT_EQ(option_at("selection.kind")->variable(), "FASA_SELECTION");
  EXPECT_EQ(option_at("selection.fac_tokens")->flag_name(), "--fac-tokens");
  EXPECT_EQ(option_at("selection.fac_tokens")->variable(), "FASA_FAC_TOKENS");
  EXPECT_FALSE(variables.count("FASA_TARGET"));
}

// The value that an option prints is accepted as its input: for the defaults, and for a config with
// every option set.
TEST(ConfigTable, EveryValueSurvivesTheWayThroughJson) {
  Config full = load_config({.toml = R"(
    preset = "fasa-c"
    [device]
    name = "emulated"
    threads = 3
    numa = 1
    [memory]
    device_memory = "6GiB"
    host_memory = 4194304
    pinned_memory = "1.5kB"
    [selection]
    kind = "full"
    slice = "lean"
    slice_dtype = "int8"
    tip_chunks = 7
    fac_tokens = [256, 0.25, 1.0]
    sinks = 2
    recent = 9
    dense_layers = [0, 2]
    map = "m.json"
    [placement]
    rows = "host"
    row_dtype = "f16"
    hot_rows = 0
    [prefetch]
    streams = 4
    [link]
    bandwidth = "12.5GB/s"
    latency = "3us"
  )"});
  EXPECT_EQ(full.memory.device_memory, 6ull << 30);
  EXPECT_EQ(full.memory.pinned_memory, 1500u);
  EXPECT_EQ(full.selection.fac_tokens[1].share, 0.25);
  EXPECT_EQ(full.selection.fac_tokens[2].share, 1.0);
  EXPECT_EQ(full.placement.hot_rows, 0);
  EXPECT_EQ(full.placement.rows, RowPlacement::kHost);
  EXPECT_EQ(full.link.bandwidth, 12.5e9);
  for (const Config& config : {Config{}, full}) {
    Config copy;
    for (const ConfigOption& option : config_options()) {
      const nlohmann::json value = option.get(config);
      if (!value.is_null()) {
        EXPECT_TRUE(option.set(copy, value)) << option.path() << " " << value;
      }
    }
    EXPECT_EQ(config_to_json(copy), config_to_json(config));
  }
  EXPECT_NE(config_to_json(full), config_to_json(Config{}));
}

TEST(ConfigToml, ErrorsNameFileLineKeyValueAndWhatIsAllowed) {
  EXPECT_THAT(toml_error("[selection]\nfac_tokens = -1\n"),
              StartsWith("f.toml:2: selection.fac_tokens = -1: allowed: auto, a count of tokens"));
  EXPECT_THAT(toml_error("[selection]\nfac_tokens = 0\n"), HasSubstr("fac_tokens = 0: allowed"));
  EXPECT_THAT(toml_error("[selection]\nfac_tokens = 1.5\n"), HasSubstr("= 1.5: allowed"));
  EXPECT_THAT(toml_error("[selection]\nfac_tokens = [1.0, \"x\"]\n"), HasSubstr("\"x\"]: allowed"));
  EXPECT_THAT(toml_error("\n\n[memory]\n\ndevice_memory = \"6 Gigs\"\n"),
              StartsWith("f.toml:5: memory.device_memory = \"6 Gigs\": allowed: a size"));
  EXPECT_THAT(toml_error("[memory]\ndevice_memory = 1.5\n"), HasSubstr("= 1.5: allowed: a size"));
  EXPECT_THAT(toml_error("[memory]\ndevice_memory = 0\n"), HasSubstr("= 0: allowed: a size"));
  EXPECT_THAT(toml_error("[memory]\ndevice_memory = 6\n"), HasSubstr("did you mean 6GiB?"));
  EXPECT_THAT(toml_error("[memory]\ndevice_memory = \"6\"\n"), HasSubstr("did you mean 6GiB?"));
  EXPECT_THAT(toml_error("preset = fasa-m\n"), HasSubstr("texts need quotes"));
  EXPECT_THAT(toml_error("preset = none\n"), HasSubstr("texts need quotes"));
  EXPECT_THAT(toml_error("preset\n"), Not(HasSubstr("texts need quotes")));
  EXPECT_THAT(toml_error("[device]\nthreads = \"two\"\n"),
              StartsWith("f.toml:2: device.threads = \"two\": allowed: 0 to 1024"));
  EXPECT_THAT(toml_error("[device]\nthreads = 99999999999\n"), HasSubstr("device.threads = 99999"));
  EXPECT_THAT(toml_error("[device]\nthreads = 1979-05-27\n"), HasSubstr("a date or time"));
  EXPECT_THAT(toml_error("[selection]\nsinks = true\n"), HasSubstr("selection.sinks = true"));
  EXPECT_THAT(toml_error("[selection]\nslice = \"thin\"\n"),
              HasSubstr("selection.slice = \"thin\": allowed: default, fine, paper, lean"));
  EXPECT_THAT(toml_error("[selection]\nslice_dtype = \"int3\"\n"), HasSubstr("int8, int4, int2"));
  EXPECT_THAT(toml_error("[placement]\nrows = \"disk\"\n"), HasSubstr("host, device, auto"));
  EXPECT_THAT(toml_error("[link]\nbandwidth = \"16GB\"\n"), HasSubstr("\"16GB\": allowed: a rate"));
  EXPECT_THAT(toml_error("[link]\nlatency = 10\n"),
              HasSubstr("link.latency = 10: allowed: a time"));
  EXPECT_THAT(toml_error("preset = 3\n"), StartsWith("f.toml:1: preset = 3: allowed: fasa-m"));
}

TEST(ConfigToml, EarlierNamesAreRefusedWithTheNewOne) {
  for (const auto& [before, now] : renamed_keys()) {
    EXPECT_THAT(toml_error(fmt::format("[selection]\n{} = 1\n", before)),
                HasSubstr(fmt::format("{} (renamed to {})", before, now)));
    EXPECT_EQ(renamed_hint(now), "");
  }
}

TEST(ConfigToml, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(toml_error("[selection]\nsinks = 4\nfac_token = 128\n"),
              StartsWith("f.toml:3: unknown key selection.fac_token (nearest: fac_tokens)"));
  EXPECT_THAT(toml_error("[selektion]\nsinks = 4\n"),
              StartsWith("f.toml:1: unknown table [selektion] (nearest: selection)"));
  EXPECT_THAT(toml_error("fac_tokens = 128\n"),
              StartsWith("f.toml:1: unknown key fac_tokens; fac_tokens belongs in the table "
                         "[selection]"));
  EXPECT_THAT(toml_error("[device]\nhot_rows = 1\n"), HasSubstr("in the table [placement]"));
  EXPECT_THAT(toml_error("[device]\npreset = \"full\"\n"), HasSubstr("to the top of the file"));
  EXPECT_THAT(toml_error("[device]\nxyzzyx = 1\n"), Not(HasSubstr("nearest")));
  EXPECT_THAT(toml_error("selection = 3\n"), HasSubstr("selection = 3: allowed: a table"));
  EXPECT_THAT(toml_error("[[device]]\nname = \"cpu\"\n"), HasSubstr("allowed: a table"));
}

TEST(ConfigToml, BrokenFilesNameTheLine) {
  EXPECT_THAT(toml_error("preset = \"full\"\n[device\n"), StartsWith("f.toml:2: not TOML: "));
  EXPECT_THAT(toml_error("preset = \"full\"\npreset = \"full\"\n"), StartsWith("f.toml:2: "));
  EXPECT_THAT(message_of([] {
                load_config({.file = "/nonexistent.toml", .environment = {}, .flags = {}});
              }),
              HasSubstr("/nonexistent.toml: the config file cannot be read"));
  EXPECT_THAT(message_of([] { load_config({.file = "/", .environment = {}, .flags = {}}); }),
              HasSubstr("/: the config file cannot be read"));
}

TEST(ConfigToml, ChecksOverSeveralKeysNameThePlaceOfTheKey) {
  EXPECT_THAT(toml_error("[selection]\nrecent = 300\nfac_tokens = 256\n"),
              StartsWith("f.toml:3: selection.fac_tokens = 256: allowed: at least"));
  EXPECT_THAT(toml_error("preset = \"fast\"\n"), StartsWith("f.toml:1: preset = \"fast\""));
}

TEST(ConfigSources, LaterOnesWinAndExplicitKeysWinOverThePreset) {
  const TemporaryFile file(
      "preset = \"full\"\n[selection]\nsinks = 1\nrecent = 2\n[placement]\nrows = \"host\"\n");
  ConfigSources sources{.file = file.path(), .environment = {}, .flags = {}};
  Config config = load_config(sources);
  EXPECT_EQ(config.selection.kind, SelectionKind::kFull);
  EXPECT_EQ(config.placement.rows, RowPlacement::kHost);
  EXPECT_EQ(config.selection.sinks, 1);

  sources.environment = {{"FASA_SINKS", "5"},
                         {"FASA_RECENT", "6"},
                         {"FASA_TARGET", "avx2"},
                         {"FASA_PRESET", "fasa-c"}};
  sources.flags = {{option_at("selection.recent"), "7"}};
  config = load_config(sources);
  EXPECT_EQ(config.selection.sinks, 5);
  EXPECT_EQ(config.selection.recent, 7);
  EXPECT_EQ(config.preset, "fasa-c");
  EXPECT_EQ(config.selection.kind, SelectionKind::kFasa);
  EXPECT_EQ(config.placement.rows, RowPlacement::kHost);  // set in the file

  sources.flags.push_back({option_at("preset"), "full"});
  config = load_config(sources);
  EXPECT_EQ(config.selection.kind, SelectionKind::kFull);
}

TEST(ConfigSources, TextOfFlagsAndVariables) {
  const auto with = [](const char* path, const std::string& text) {
    return load_config({.file = "", .environment = {}, .flags = {{option_at(path), text}}});
  };
  EXPECT_EQ(with("selection.fac_tokens", "1.0").selection.fac_tokens.front().share, 1.0);
  EXPECT_TRUE(with("selection.fac_tokens", "auto").selection.fac_tokens.empty());
  EXPECT_EQ(with("selection.fac_tokens", "128").selection.fac_tokens.front().tokens, 128);
  EXPECT_EQ(with("selection.fac_tokens", "[128, 0.5]").selection.fac_tokens.size(), 2u);
  EXPECT_EQ(with("selection.dense_layers", "0,3").selection.dense_layers, (std::vector{0, 3}));
  EXPECT_EQ(with("selection.dense_layers", "2").selection.dense_layers, std::vector{2});
  EXPECT_TRUE(with("selection.dense_layers", "[]").selection.dense_layers.empty());
  EXPECT_EQ(with("selection.map", "12").selection.map, "12");
  EXPECT_EQ(with("device.numa", "1").device.numa, "1");
  EXPECT_EQ(with("prefetch.depth", "2").prefetch.depth, 2);
  EXPECT_FALSE(with("prefetch.depth", "auto").prefetch.depth.has_value());
  EXPECT_EQ(with("prefetch.predictor", "runners-up").prefetch.predictor, PredictorKind::kRunnersUp);
  EXPECT_EQ(with("placement.hot_rows", "7").placement.hot_rows, 7);
  EXPECT_FALSE(with("placement.hot_rows", "auto").placement.hot_rows.has_value());
  EXPECT_THAT(message_of([&] { with("prefetch.depth", "deep"); }), HasSubstr("auto, or 0 to"));
  EXPECT_EQ(with("memory.host_memory", "64MB").memory.host_memory, 64000000u);
  EXPECT_EQ(with("memory.host_memory", "4194304").memory.host_memory, 4194304u);
  EXPECT_THAT(message_of([&] { with("memory.host_memory", "64M"); }), HasSubstr("allowed: a size"));
  EXPECT_THAT(message_of([&] { with("selection.fac_tokens", "-1"); }),
              StartsWith("--fac-tokens: selection.fac_tokens = \"-1\": allowed: auto, a count"));
  EXPECT_THAT(message_of([&] { with("selection.fac_tokens", ""); }), HasSubstr("allowed"));
  EXPECT_THAT(message_of([&] { with("selection.fac_tokens", "10"); }),
              StartsWith("--fac-tokens: selection.fac_tokens = 10: allowed: at least"));
  EXPECT_THAT(message_of([] {
                load_config({.file = "", .environment = {{"FASA_HOT_ROWS", "many"}}, .flags = {}});
              }),
              StartsWith("FASA_HOT_ROWS: placement.hot_rows = \"many\": allowed: auto, or 0 to"));
}

TEST(ConfigSources, AVariableThatIsNoOptionIsAWarning) {
  ::testing::internal::CaptureStderr();
  load_config({.file = "", .environment = {{"FASA_FAC_TOKEN", "1"}}, .flags = {}});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("nearest: FASA_FAC_TOKENS"));
  ::testing::internal::CaptureStderr();
  load_config({.file = "", .environment = {{"FASA_TARGET", "avx2"}}, .flags = {}});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ConfigReference, TheCommittedPageIsTheTables) {
  std::ifstream file(source_path("docs/configuration.md"));
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), config_reference())
      << "write it again: build/release/fasa config --reference > docs/configuration.md";
}

}  // namespace
}  // namespace fasa
