// Stop strings are found however the text is split into tokens.
#include "runtime/text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"

namespace fasa::text {
namespace {

TEST(StopStringsTest, HoldsBackWhatMayBecomeOne) {
  StopStrings stop({"</s>", "\n\nUser:"});
  EXPECT_EQ(stop.push("Hello <"), "Hello ");
  EXPECT_EQ(stop.push("b>\n"), "<b>");
  EXPECT_EQ(stop.push("\nUs"), "");
  EXPECT_EQ(stop.push("e </"), "\n\nUse ");
  EXPECT_FALSE(stop.stopped());
  EXPECT_EQ(stop.push("s>more"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.found(), "</s>");
  EXPECT_EQ(stop.push("after"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStringsTest, TheEndGivesWhatWasHeld) {
  StopStrings stop({"END"});
  EXPECT_EQ(stop.push("the EN"), "the ");
  EXPECT_EQ(stop.finish(), "EN");
  EXPECT_EQ(StopStrings({}).push("all of it"), "all of it");
  EXPECT_THROW(StopStrings({""}), UsageError);
}

TEST(StopStringsTest, AnyCutGivesTheSameText) {
  std::mt19937 random(5);
  const auto text_of = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<std::string> strings = {text_of(3 + random() % 4), text_of(4 + random() % 4)};
    const std::string text = text_of(30);
    size_t begin = text.size(), end = std::string::npos;
    for (const std::string& string : strings) {
      const size_t found = text.find(string);
      const size_t last = found == std::string::npos ? found : found + string.size();
      if (last < end || (last == end && found < begin)) begin = found;
      end = std::min(end, last);
    }
    StopStrings stop(strings);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min<size_t>(1 + random() % 5, text.size() - at);
      out += stop.push(text.substr(at, size));
      at += size;
    }
    out += stop.finish();
    EXPECT_EQ(stop.stopped(), end != std::string::npos);
    EXPECT_EQ(stop.found(), stop.stopped() ? text.substr(begin, end - begin) : "");
    EXPECT_EQ(out, text.substr(0, begin)) << text << " " << strings[0] << " " << strings[1];
  }
}

}  // namespace
}  // namespace fasa::text
