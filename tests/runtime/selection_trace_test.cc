#include "runtime/trace/selection_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/error.h"
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
  EXPECT_TRUE(trace.predicted_set(2, 0, 0, 0).empty());
  EXPECT_EQ(trace.predicted_set(2, 1, 0, 0).size(), 36u);
  EXPECT_TRUE(trace.predicted_set(2, 1, 0, 1).empty());
  EXPECT_EQ(trace.predicted_set(2, 2, 1, 1).size(), 36u);
}

TEST(SelectionTrace, ReadsWhatItWrote) {
  const SelectionTrace trace = make_trace({.layers = 4, .context = 70000, .depths = 3});
  const std::string bytes = trace.to_bytes();
  EXPECT_EQ(SelectionTrace::parse(bytes, "a"), trace);
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
      sets[slot + 1] = copy(good.predicted_set(0, layer, head, 0));
      sets[slot + 2] = copy(good.predicted_set(0, layer, head, 1));
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
  rejects([](auto& all) { all[1] = {1, 2}; });  // layer 0 has no prediction
  rejects([](auto& all) { all[6 * 2 + 1].clear(); });
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
  EXPECT_THAT(message_of(replaced(bytes, "\"schema\":1", "\"schema\":2")), HasSubstr("schema = 2"));
  EXPECT_THAT(message_of(replaced(bytes, "\"layers\":3", "\"layers\":0")), HasSubstr("layers = 0"));
  EXPECT_THAT(message_of(replaced(bytes, "\"depth\":2", "\"depth\":3")), HasSubstr("depth = 3"));
  EXPECT_THAT(message_of(replaced(bytes, "next-query", "crystalbal")),
              HasSubstr("allowed: next-query"));
  EXPECT_THAT(message_of(replaced(bytes, "\"steps\":6", "\"steps\":7")),
              HasSubstr("the file ends within"));
  EXPECT_THAT(message_of(replaced(bytes, "\"steps\":6", "\"steps\":5")),
              HasSubstr("bytes follow the last step"));
  EXPECT_THAT(message_of(replaced(bytes, "\"budget\":24", "\"budget\":23")),
              HasSubstr("the set has 24 positions; allowed: 1 to 23"));
}

TEST(SelectionTrace, SaysWhichNumberLies) {
  const std::string bytes = make_trace().to_bytes();
  const size_t body = body_at(bytes);  // context 300: two bytes, then a set's size
  std::string changed = bytes;
  changed[body + 2] = 0;
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("the set has 0 positions"));
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("byte " + std::to_string(body + 2) + " of"));
  changed = bytes;
  changed.replace(body + 3, 1, "\xff\x7f");  // a first position beyond the context
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("outside the context of 300 tokens"));
  changed = bytes;
  changed.replace(body, 2, std::string("\x80\x00", 2));
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("a context takes too many bytes"));
  changed = bytes;
  changed.replace(body, 1, "\xff\xff\xff\xff\xff");
  EXPECT_THAT(message_of(sealed(changed)), HasSubstr("beyond 2147483647"));
}

}  // namespace
}  // namespace fasa::testing
