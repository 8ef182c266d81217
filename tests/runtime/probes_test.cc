// Where probes are inserted, and which positions of the calibration data are queries.
#include "runtime/capture/probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/capture/calibration_data.h"

namespace fasa {
namespace {

// Ascending ids: every repetition is an inserted probe.
std::vector<int32_t> rising(int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 1000);
  return ids;
}

TEST(Probes, EveryRepeatStandsEarlierInTheText) {
  const std::vector<int32_t> text = rising(5000);
  const ProbedText probed = plant_probes(text, 2000, {.queries = 32, .length = 16, .seed = 3});
  EXPECT_EQ(probed.ids.size(), 2000u);
  EXPECT_EQ(probed.text_end, 2000 - 8 * 16);
  ASSERT_EQ(probed.positions.size(), 32u);
  EXPECT_TRUE(std::is_sorted(probed.positions.begin(), probed.positions.end()));
  const auto body_end = probed.ids.begin() + probed.text_end;
  for (int64_t at = probed.text_end; at < 2000; at += 16) {
    const auto repeat = probed.ids.begin() + at;
    EXPECT_NE(std::search(probed.ids.begin(), body_end, repeat, repeat + 16), body_end);
  }
  for (const int32_t position : probed.positions) {
    EXPECT_GE(position, probed.text_end);
    EXPECT_LT(position, 2000);
    // earlier queries have nothing to look back to
    EXPECT_GE((position - probed.text_end) % 16, 2);
  }
}

TEST(Probes, TheTextIsWholeBetweenTheStrings) {
  const std::vector<int32_t> text = rising(1000);
  const ProbedText probed = plant_probes(text, 700, {.queries = 8, .length = 10, .seed = 1});
  // Text tokens keep their order: without the inserted strings the ids are a prefix of the text.
  std::vector<int32_t> body(probed.ids.begin(), probed.ids.begin() + probed.text_end);
  size_t next = 0;
  for (const int32_t id : body) {
    if (next < text.size() && id == text[next]) ++next;
  }
  EXPECT_GE(next, 700u - 2 * 2 * 10);
}

TEST(Probes, SameSeedSameData) {
  const std::vector<int32_t> text = rising(900);
  const ProbedText first = plant_probes(text, 600, {.seed = 5});
  EXPECT_EQ(first.ids, plant_probes(text, 600, {.seed = 5}).ids);
  EXPECT_NE(first.ids, plant_probes(text, 600, {.seed = 6}).ids);
}

TEST(Probes, ShortTextsStayAsTheyAre) {
  for (const int count : {1, 2, 16, 31}) {
    const std::vector<int32_t> text = rising(count);
    const ProbedText probed = plant_probes(text, 4096, {.queries = 32, .length = 16, .seed = 1});
    EXPECT_EQ(probed.ids, text);
    EXPECT_EQ(probed.text_end, count);
    EXPECT_TRUE(probed.positions.empty());
  }
  const ProbedText none = plant_probes(rising(500), 100, {.queries = 0, .length = 16, .seed = 1});
  EXPECT_EQ(none.ids, rising(100));
}

TEST(CalibrationData, AThirdOfTheQueriesAreProbes) {
  const std::vector<int32_t> text = rising(6000);
  const CalibrationData data = make_calibration_data(text, {.tokens = 3000});
  EXPECT_EQ(data.ids.size(), 3000u);
  EXPECT_EQ(data.positions.size(), 96u);
  EXPECT_TRUE(data.probes);
  EXPECT_TRUE(std::is_sorted(data.positions.begin(), data.positions.end()));
  EXPECT_EQ(std::adjacent_find(data.positions.begin(), data.positions.end()), data.positions.end());
  EXPECT_EQ(std::count_if(data.positions.begin(), data.positions.end(),
                          [](int32_t p) { return p >= 3000 - 8 * 16; }),
            32);
  EXPECT_GE(data.positions.front(), (3000 - 8 * 16) / 4);
}

TEST(CalibrationData, WithoutProbesTheTextIsTaken) {
  const CalibrationData data =
      make_calibration_data(rising(500), {.tokens = 300, .queries = 20, .probes = false});
  EXPECT_EQ(data.ids, rising(300));
  EXPECT_EQ(data.positions.size(), 20u);
  EXPECT_FALSE(data.probes);
  EXPECT_NE(data.hash(),
            make_calibration_data(rising(500), {.tokens = 301, .probes = false}).hash());
  EXPECT_THAT(data.hash(), ::testing::StartsWith("fnv1a:"));
}

TEST(CalibrationData, OneTokenIsEnoughAndNoneIsAnError) {
  const CalibrationData data = make_calibration_data(rising(1), {});
  EXPECT_EQ(data.ids.size(), 1u);
  EXPECT_EQ(data.positions, std::vector<int32_t>{0});
  EXPECT_THROW(make_calibration_data({}, {}), UsageError);
}

class Texts : public ::testing::Test {
 protected:
  Texts()
      : folder_(std::filesystem::temp_directory_path() /
                ("fasa_texts_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Texts() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  std::filesystem::path folder_;
};

TEST_F(Texts, IdsWithoutATokenizer) {
  const std::string list = write("list", "[1, 2,\n3]");
  const std::string plain = write("plain", "10 20\t30 40 50 60\n");
  EXPECT_EQ(read_calibration_texts({list}, nullptr, 100), (std::vector<int32_t>{1, 2, 3}));
  // Equal shares, as far as the files are long enough.
  EXPECT_EQ(read_calibration_texts({plain, list}, nullptr, 4),
            (std::vector<int32_t>{10, 20, 1, 2}));
  EXPECT_EQ(read_calibration_texts({plain, list}, nullptr, 8),
            (std::vector<int32_t>{10, 20, 30, 40, 50, 1, 2, 3}));
}

TEST_F(Texts, BadFilesNameThePlace) {
  for (const std::string& bad :
       {write("a", "1 2 x3"), write("b", "1 2 -3"), write("c", "1 2 9e9")}) {
    try {
      read_calibration_texts({bad}, nullptr, 10);
      ADD_FAILURE() << bad;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(bad + ": byte "));
    }
  }
  EXPECT_THROW(read_calibration_texts({write("empty", "")}, nullptr, 10), InputError);
  EXPECT_THROW(read_calibration_texts({folder_ / "none"}, nullptr, 10), InputError);
  EXPECT_THROW(read_calibration_texts({folder_}, nullptr, 10), InputError);
}

TEST_F(Texts, DefaultsLieBesideTheModel) {
  std::filesystem::create_directory(folder_ / "texts");
  std::filesystem::create_directory(folder_ / "model");
  const std::string ruth = write("texts/ruth.txt", "In the days");
  for (const char* dir : {"model", "model/"}) {
    EXPECT_EQ(default_calibration_texts((folder_ / dir).string()), std::vector<std::string>{ruth});
  }
}

}  // namespace
}  // namespace fasa
