// Runs every target over its seeds, their prefixes, and reproducible pseudo-random changes.
#include <filesystem>
#include <map>

#include "tests/fuzz/fuzz_target.h"
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

std::map<std::string, FuzzBody>& targets() {
  static std::map<std::string, FuzzBody> all;
  return all;
}

FuzzBody running = nullptr;

}  // namespace

void add_fuzz_target(const char* name, FuzzBody body) { targets().emplace(name, body); }

TEST(FuzzTargets, SeedsBeginningsAndChanges) {
  ASSERT_FALSE(targets().empty());
  for (const auto& [name, body] : targets()) {
    SCOPED_TRACE(name);
    running = body;
    const auto seeds = fuzz_seeds("fuzz/corpus/" + name);
    ASSERT_GE(seeds.size(), 3u) << name;
    fuzz_prefixes(seeds);
    fuzz_changes(seeds, 200);
  }
}

// Every target has a folder of seeds, and every folder a target.
TEST(FuzzTargets, EachHasItsSeeds) {
  const auto corpus = std::filesystem::path(FASA_SOURCE_DIR) / "tests" / "fuzz" / "corpus";
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
    if (!entry.is_directory()) continue;  // dictionaries
    const std::string name = entry.path().filename();
    // A build without Boost has no server, so no such target.
    if (name.starts_with("api_") && !targets().contains("api_request")) continue;
    EXPECT_TRUE(targets().contains(name)) << entry;
  }
}

}  // namespace fasa::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fasa::testing::run_guarded(fasa::testing::running, data, size);
  return 0;
}
