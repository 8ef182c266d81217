#include "runtime/trace/selection_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/trace/trace_coding.h"
#include "tests/support/traces.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::string& bytes) {
  try {
    SelectionTrace::parse(bytes, "a.fasatrace");
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

// The bytes with a checksum that fits them.
std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - 8);
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3ull;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(hash >> (8 * i)));
  return bytes;
}

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return sealed(bytes.replace(at, from.size(), to));
}

// Offset of the first step.
size_t body_at(const std::string& bytes) {
  return 12 + static_cast<uint8_t>(bytes[8]) + 256u * static_cast<uint8_t>(bytes[9]);
}

TEST(SelectionTrace, KeepsWhatItWasGiven) {
  const SelectionTrace trace = make_trace();
  EXPECT_EQ(trace.steps(), 6);
  EXPECT_EQ(trace.context(0), 300);
  EXPECT_EQ(trace.context(5), 305);
  EXPECT_EQ(trace.true_set(2, 1, 1).size(), 24u);
  EXPECT_EQ(trace.true_set(2, 1, 1)[0], 0);
  EXPECT_EQ(trace.true_set(2, 1, 1).back(), 301);
}

TEST(SelectionTrace, KeepsRanks) {
  const SelectionTrace trace = make_trace();
  const auto ranking = trace.ranking(3, 2, 1);
  const auto set = trace.true_set(3, 2, 1);
  ASSERT_EQ(ranking.size(), 36u);
  EXPECT_EQ(trace.runners_up(3, 2, 1).data(), ranking.data() + 18);
  for (size_t i = 0; i < ranking.size(); ++i) {
    EXPECT_EQ(std::ranges::binary_search(set, ranking[i]), i < 18) << i;
  }
  EXPECT_TRUE(make_trace({.ranked = false}).ranking(3, 2, 1).empty());
  TraceShape shape = shape_of({});
  shape.bands = {9, 17};  // no end at 18
  EXPECT_THROW(SelectionTrace{shape}, UsageError);
  shape.bands = {18, 18};
  EXPECT_THROW(SelectionTrace{shape}, UsageError);
}

TEST(SelectionTrace, ReadsWhatItWrote) {
  const SelectionTrace trace = make_trace({.layers = 4, .context = 70000});
  const std::string bytes = trace.to_bytes();
  EXPECT_EQ(SelectionTrace::parse(bytes, "a"), trace);
  for (const TraceSetup setup : {TraceSetup{.ranked = false}, TraceSetup{.context = 24}}) {
    EXPECT_EQ(SelectionTrace::parse(make_trace(setup).to_bytes(), "a"), make_trace(setup));
  }
  const std::string path = ::testing::TempDir() + "selection_trace_test.fasatrace";
  trace.save(path);
  EXPECT_EQ(SelectionTrace::load(path), trace);
  std::filesystem::remove(path);
  EXPECT_THROW(trace.save("/nowhere/at/all.fasatrace"), UsageError);
  EXPECT_THROW(SelectionTrace::load(path), InputError);
}

TEST(SelectionTrace, TakesOnlySetsOfItsShape) {
  SelectionTrace trace(shape_of({}));
  const SelectionTrace good = make_trace();
  std::vector<std::vector<int32_t>> sets(trace.slots());
  for (int layer = 0; layer < 3; ++layer) {
    for (int head = 0; head < 2; ++head) {
      const size_t slot = trace.slot(layer, head);
      const auto copy = [](std::span<const int32_t> set) {
        return std::vector<int32_t>(set.begin(), set.end());
      };
      sets[slot] = copy(good.true_set(0, layer, head));
      sets[slot + 1] = copy(good.ranking(0, layer, head));
    }
  }
  const auto rejects = [&](auto change) {
    auto changed = sets;
    change(changed);
    EXPECT_THROW(trace.add_step(300, changed), UsageError);
    EXPECT_EQ(trace.steps(), 0);
  };
  rejects([](auto& all) { all.pop_back(); });
  rejects([](auto& all) { std::swap(all[0][3], all[0][4]); });
  rejects([](auto& all) { all[0][4] = all[0][3]; });
  rejects([](auto& all) { all[0].back() = 300; });
  rejects([](auto& all) { all[0][0] = -1; });
  rejects([](auto& all) { all[0].clear(); });
  rejects([](auto& all) { std::swap(all[1][3], all[1][4]); });
  rejects([](auto& all) { all[1].back() = 300; });
  rejects([](auto& all) { all[1].push_back(0); });
  rejects([](auto& all) { std::swap(all[1].front(), all[1].back()); });  // the set's and another
  rejects([](auto& all) { all[1][20] = all[1][30]; });
  trace.add_step(300, sets);
  EXPECT_THROW(trace.add_step(300, sets), UsageError);
  EXPECT_EQ(trace.true_set(0, 2, 1).size(), 24u);
}

TEST(SelectionTrace, SaysWhereAFileLies) {
  const std::string bytes = make_trace().to_bytes();
  EXPECT_THAT(message_of("PK..."), HasSubstr("a.fasatrace: not a selection trace"));
  EXPECT_THAT(message_of(bytes.substr(0, 12)), HasSubstr("before its header"));
  EXPECT_THAT(message_of(bytes.substr(0, bytes.size() - 1)), HasSubstr("checksum"));
  std::string flipped = bytes;
  flipped[flipped.size() / 2] ^= 4;
  EXPECT_THAT(message_of(flipped), HasSubstr("checksum does not match"));
  EXPECT_THAT(message_of(replaced(bytes, "\"schema\":3", "\"schema\":2")), HasSubstr("schema = 2"));
  EXPECT_THAT(message_of(replaced(bytes, "\"layers\":3", "\"layers\":0")), HasSubstr("layers = 0"));
  EXPECT_THAT(message_of(replaced(bytes, "[9,18,", "[9,17,")), HasSubstr("bands"));
  EXPECT_THAT(message_of(replaced(bytes, "[9,18,27,", "[9,18,18,")), HasSubstr("bands"));
  EXPECT_THAT(message_of(replaced(bytes, "\"steps\":6", "\"steps\":7")),
              HasSubstr("they end too early"));
  EXPECT_THAT(message_of(replaced(bytes, "\"steps\":6", "\"steps\":5")),
              HasSubstr("bytes follow the last step"));
}

TEST(SelectionTrace, SaysThatTheFrameLies) {
  const std::string bytes = make_trace().to_bytes();
  std::string changed = bytes;
  changed[body_at(bytes)] = 'x';  // the frame's magic
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("no zstd frame of known size"));
  changed = bytes;
  changed.insert(changed.size() - 8, "x");
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("broken zstd frame"));
}

// The steps of a trace of one step, one layer and one head, changed.
TEST(SelectionTrace, SaysWhichValueLies) {
  const auto message = [&](const std::string& steps) -> std::string {
    std::string frame(ZSTD_compressBound(steps.size()), '\0');
    frame.resize(ZSTD_compress(frame.data(), frame.size(), steps.data(), steps.size(), 1));
    SelectionTrace trace(shape_of({.layers = 1, .kv_heads = 1}));
    try {
      decode_steps(frame, 1, "a", trace);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto bytes = [](std::initializer_list<int> values) {
    std::string all;
    for (const int value : values) all.push_back(static_cast<char>(value));
    return all;
  };
  EXPECT_EQ(message(bytes({9, 1, 5, 1})), "nothing");
  EXPECT_THAT(message(bytes({0xff, 0xff, 0xff, 0xff, 0xff})), HasSubstr("beyond 2147483647"));
  EXPECT_THAT(message(bytes({0xff, 0xff, 0xff, 0xff, 0x7f})), HasSubstr("beyond 2147483647"));
  EXPECT_THAT(message(""), HasSubstr("byte 0 of the steps' 0: they end too early"));
  EXPECT_THAT(message(bytes({9, 1, 10, 1})), HasSubstr("outside the context of 10 tokens"));
  EXPECT_THAT(message(bytes({9, 1, 5, 6})), HasSubstr("label 6; allowed: 0 to 5"));
  EXPECT_THAT(message(bytes({9, 0})), HasSubstr("set size"));
  EXPECT_THAT(message(bytes({9, 1, 5, 1, 0})), HasSubstr("bytes follow the last step"));
}

}  // namespace
}  // namespace fasa::testing
