// The main function of every test program: GoogleTest's, with options for ctest.
//
//   --only=NAME     only the tests of NAME.cc, of which `--gtest_filter` selects a part
//   --part=K/N      part K of N of these tests, K from 0: for files too long for one process
//   --heavy         the heavy ones; HEAVY_SHARE=K/N in the environment runs a share of them
#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace {

struct Share {
  int index = 0;
  int count = 1;
};

std::optional<Share> parse_share(std::string_view text) {
  Share share;
  const char* const end = text.data() + text.size();
  const auto [slash, bad_index] = std::from_chars(text.data(), end, share.index);
  if (bad_index != std::errc() || slash == end || *slash != '/') return std::nullopt;
  const auto [rest, bad_count] = std::from_chars(slash + 1, end, share.count);
  if (bad_count != std::errc() || rest != end) return std::nullopt;
  if (share.index < 0 || share.index >= share.count) return std::nullopt;
  return share;
}

// The patterns are GoogleTest's filters: "a:b-c:d".
bool matches_any(const std::string& name, std::string_view patterns) {
  while (!patterns.empty()) {
    const size_t colon = patterns.find(':');
    const std::string pattern(patterns.substr(0, colon));
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
    if (colon == std::string_view::npos) break;
    patterns.remove_prefix(colon + 1);
  }
  return false;
}

bool passes(const std::string& name, std::string_view filter) {
  const size_t dash = filter.find('-');
  const std::string_view wanted = filter.substr(0, dash);
  const bool in = wanted.empty() || matches_any(name, wanted);
  return in && (dash == std::string_view::npos || !matches_any(name, filter.substr(dash + 1)));
}

// A filter that selects a file's tests, "" if there are none.
std::string filter_of(const std::string& file, const std::string& filter) {
  std::string names;
  const auto& unit = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < unit.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *unit.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (std::filesystem::path(test.file()).stem() != file || !passes(name, filter)) continue;
      names += (names.empty() ? "" : ":") + name;
    }
  }
  return names;
}

int refuse(std::string_view argument) {
  std::fprintf(stderr, "the test program does not understand %.*s\n",
               static_cast<int>(argument.size()), argument.data());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  std::string only;
  std::optional<Share> part = Share{}, share = Share{};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--only=")) {
      only = argument.substr(7);
    } else if (argument.starts_with("--part=")) {
      part = parse_share(argument.substr(7));
    } else if (argument == "--heavy") {
      const char* const text = std::getenv("HEAVY_SHARE");
      if (text != nullptr) share = parse_share(text);
    } else {
      return refuse(argument);
    }
    if (!part || !share) return refuse(argument);
  }
  if (!only.empty()) {
    const std::string names = filter_of(only, ::testing::GTEST_FLAG(filter));
    if (names.empty()) {
      std::fprintf(stderr, "no test of %s.cc was asked for\n", only.c_str());
      return 1;
    }
    ::testing::GTEST_FLAG(filter) = names;
  }
  if (part->count * share->count > 1) {
    const int index = part->index * share->count + share->index;
    setenv("GTEST_TOTAL_SHARDS", std::to_string(part->count * share->count).c_str(), 1);
    setenv("GTEST_SHARD_INDEX", std::to_string(index).c_str(), 1);
  }
  return RUN_ALL_TESTS();
}
