#include "runtime/trace/selection_trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <filesystem>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/io/hash.h"
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
  bytes.resize(bytes.size() - 16);
  return bytes + fmt::format("{:016x}", fnv1a(bytes));
}

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return sealed(bytes.replace(at, from.size(), to));
}

// Offset of the first step.
size_t body_at(const std::string& bytes) { return bytes.find("}\n") + 2; }

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
  EXPECT_THAT(message_of(bytes.substr(0, 12)), HasSubstr("within its header"));
  EXPECT_THAT(message_of(bytes.substr(0, bytes.size() - 1)), HasSubstr("checksum"));
  std::string flipped = bytes;
  flipped[flipped.size() / 2] ^= 4;
  EXPECT_THAT(message_of(flipped), HasSubstr("checksum does not match"));
  EXPECT_THAT(message_of(replaced(bytes, "\"schema\":4", "\"schema\":2")), HasSubstr("schema = 2"));
  EXPECT_THAT(message_of(replaced(bytes, "\"layers\":3", "\"layers\":0")), HasSubstr("layers = 0"));
  EXPECT_THAT(message_of(replaced(bytes, "[9,18,", "[9,17,")), HasSubstr("bands"));
  EXPECT_THAT(message_of(replaced(bytes, "[9,18,27,", "[9,18,18,")), HasSubstr("bands"));
  EXPECT_THAT(message_of(replaced(bytes, "\"steps\":6", "\"steps\":7")),
              HasSubstr("step 6: it is no zstd frame"));
  EXPECT_THAT(message_of(replaced(bytes, "\"steps\":6", "\"steps\":5")),
              HasSubstr("bytes follow the last step"));
}

TEST(SelectionTrace, SaysThatTheFrameLies) {
  const std::string bytes = make_trace().to_bytes();
  std::string changed = bytes;
  changed[body_at(bytes)] = 'x';  // the frame's magic
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("no zstd frame of known size"));
  changed = bytes;
  changed.insert(changed.size() - 16, "x");
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("bytes follow the last step"));
  changed = bytes;
  changed[body_at(bytes) + 5] ^= 1;  // its content's size
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("step 0: it is a broken zstd frame"));
}

// The labels of a trace's first step, changed.
TEST(SelectionTrace, SaysWhichLabelLies) {
  const auto message = [](TraceSetup setup, const std::string& labels) {
    setup.steps = 1;
    std::string bytes = make_trace(setup).to_bytes();
    bytes.resize(body_at(bytes));
    std::string frame(ZSTD_compressBound(labels.size()), '\0');
    frame.resize(ZSTD_compress(frame.data(), frame.size(), labels.data(), labels.size(), 1));
    return message_of(sealed(bytes + frame + std::string(16, '0')));
  };
  const TraceSetup one{.layers = 1, .kv_heads = 1};
  const std::string good = std::string(5, '\0') + '\1' + std::string(4, '\0');
  EXPECT_EQ(message(one, good), "nothing");
  EXPECT_THAT(message(one, good + '\6'), HasSubstr("step 0: label 6; allowed: 0 to 5"));
  EXPECT_THAT(message(one, good + '\xff'), HasSubstr("label 255"));
  EXPECT_THAT(message(one, std::string(10, '\0')), HasSubstr("step 0: selection trace: set size"));
  EXPECT_THAT(message({}, good + '\1'), HasSubstr("11 labels of 6 heads"));
}

}  // namespace
}  // namespace fasa::testing
