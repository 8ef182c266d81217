// A sequence that was saved as pages and loaded again, with all rows or with rows fetched later,
// gives the same outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "offload/store/pending_pages.h"
#include "offload/wrapped_device.h"
#include "runtime/base/error.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;

struct SavedPage {
  std::vector<std::byte> rows, slices;
};

// Saves `at_once` pages a call.
std::vector<SavedPage> save(Runtime& runtime, SequenceId id, int64_t at_once = 3) {
  const PageBytes bytes = runtime.traits().page;
  const int64_t length = runtime.length(id);
  std::vector<SavedPage> pages(static_cast<size_t>(pages_of(length)));
  for (int64_t first = 0; first < std::ssize(pages); first += at_once) {
    std::vector<PageSpans> views;
    for (int64_t page = first; page < std::min(std::ssize(pages), first + at_once); ++page) {
      SavedPage& saved = pages[static_cast<size_t>(page)];
      saved.rows.resize(bytes.rows);
      saved.slices.resize((page + 1) * kPageTokens <= length ? bytes.slices : 0);
      views.push_back({saved.rows, saved.slices});
    }
    runtime.exchange().export_pages(id, first, views);
  }
  return pages;
}

// Loads `at_once` pages a call, without the rows of pages before `later`.
void load(Runtime& runtime, SequenceId id, const std::vector<SavedPage>& pages, int64_t tokens,
          int64_t later = 0, int64_t at_once = 2) {
  for (int64_t at = runtime.length(id); at < tokens; at = runtime.length(id)) {
    const int64_t now = std::min(at_once * kPageTokens, tokens - at);
    std::vector<ConstPageSpans> views;
    for (int64_t page = at / kPageTokens; page < pages_of(at + now); ++page) {
      const SavedPage& saved = pages[static_cast<size_t>(page)];
      ConstPageSpans& view = views.emplace_back();
      if (page >= later) view.rows = saved.rows;
      if ((page + 1) * kPageTokens <= tokens) view.slices = saved.slices;
    }
    runtime.exchange().import_pages(id, now, views);
  }
}

// Serves and counts rows of saved pages; memory that no fetch names stays unchanged.
class SavedRows final : public PendingPages {
 public:
  explicit SavedRows(const std::vector<SavedPage>& pages) : pages_(pages) {}

  void load(std::span<const RowBytes> wanted, std::span<std::byte* const> blocks) override {
    if (wanted.empty()) return;
    if (left_ == 0) lost_ = true;
    if (lost_) throw InputError("the disk is gone");
    --left_;
    for (const RowBytes& part : wanted) {
      std::memcpy(blocks[static_cast<size_t>(part.page)] + part.offset,
                  pages_[static_cast<size_t>(part.page)].rows.data() + part.offset,
                  static_cast<size_t>(part.bytes));
      bytes += part.bytes;
    }
  }
  bool load_more(int64_t pages, size_t, std::span<std::byte* const> blocks) override {
    const RowBytes page{next_, 0, std::ssize(pages_[0].rows)};
    if (next_ < pages) load({&page, 1}, blocks);
    return ++next_ >= pages;
  }
  bool lost() const override { return lost_; }
  void fail_after(int fetches) { left_ = fetches; }

  int64_t bytes = 0;

 private:
  const std::vector<SavedPage>& pages_;
  int64_t next_ = 0;
  int left_ = -1;
  bool lost_ = false;
};

RunSetup setup_of(const std::string& device, int64_t low_bit_tokens = 0, int shared_layers = 0) {
  return {.device = device, .low_bit_tokens = low_bit_tokens, .shared_layers = shared_layers};
}

class PagesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PagesTest, WhatIsLoadedIsWhatWasSaved) {
  for (const int64_t tokens : {1, 64, 300, 320}) {
    struct Case {
      int low_bit, shared;
      bool windows;  // in layer 0, with heads of another shape
    };
    for (const auto& [low_bit, shared, windows] : {Case{0, 0, false},
                                                   {40, 0, false},
                                                   {0, 1, false},
                                                   {40, 2, false},
                                                   {0, 0, true},
                                                   {40, 1, true}}) {
      const RunSetup setup = setup_of(GetParam(), low_bit, shared);
      Geometry geometry = small_geometry();
      if (windows) geometry.windows = {37, 0, 0};
      if (windows) geometry.window_heads = {1, 36, 43, 36};
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << low_bit << " low-bit, "
                                        << shared << " sharing layers, windows " << windows);
      RuntimeRun run(setup, geometry), other(setup, geometry);
      const SequenceId a = run.runtime().create();
      run.prefill(a, 1, 320, 96);
      const auto pages = save(run.runtime(), a);
      const SequenceId fork = run.runtime().fork(a, tokens);
      const SequenceId b = other.runtime().create();
      load(other.runtime(), b, pages, tokens);
      EXPECT_EQ(other.runtime().length(b), tokens);
      EXPECT_EQ(other.decode(b, 2, 70), run.decode(fork, 2, 70));
      EXPECT_EQ(other.prefill(b, 3, 90, 40), run.prefill(fork, 3, 90, 40));
      const auto again = save(other.runtime(), b), first = save(run.runtime(), fork);
      for (size_t page = 0; page < first.size(); ++page) {
        EXPECT_TRUE(again[page].rows == first[page].rows) << page;
      }
    }
  }
}

TEST_P(PagesTest, RefusesWhatIsNoPage) {
  RuntimeRun run(setup_of(GetParam()));
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  run.prefill(id, 1, 70, 96);
  const PageBytes bytes = runtime.traits().page;
  std::vector<std::byte> rows(bytes.rows), slices(bytes.slices);
  const PageSpans whole{rows, slices}, partial{rows, {}};
  const PageSpans both[] = {whole, partial};
  EXPECT_THROW(runtime.exchange().export_pages(id, 1, both), UsageError);
  EXPECT_THROW(runtime.exchange().export_pages(id, 0, {}), UsageError);
  EXPECT_THROW(runtime.exchange().export_pages(id, 0, {&partial, 1}), UsageError);
  EXPECT_THROW(runtime.exchange().export_pages(id, 1, {&whole, 1}), UsageError);
  const ConstPageSpans no_rows{{}, {}}, without_slices{rows, {}}, with_slices{rows, slices};
  const ConstPageSpans three[] = {with_slices, without_slices, without_slices};
  EXPECT_THROW(runtime.exchange().import_pages(id, 3, {&without_slices, 1}),
               UsageError);  // behind 70 tokens
  runtime.truncate(id, 64);
  EXPECT_THROW(runtime.exchange().import_pages(id, 65, {&with_slices, 1}), UsageError);
  EXPECT_THROW(runtime.exchange().import_pages(id, 67, three), UsageError);  // in two pages
  EXPECT_THROW(runtime.exchange().import_pages(id, 3, {&no_rows, 1}), UsageError);
  EXPECT_EQ(runtime.length(id), 64);
  runtime.exchange().import_pages(id, 67, std::span(three).first(2));
  EXPECT_EQ(runtime.length(id), 131);
}

// Counts the calls that wait for the device.
class WaitCountingDevice final : public WrappedDevice {
 public:
  explicit WaitCountingDevice(std::unique_ptr<Device> inner)
      : WrappedDevice(*inner), owned_(std::move(inner)) {}

  int waits = 0;

 protected:
  void do_synchronize(StreamView stream) override {
    ++waits;
    WrappedDevice::do_synchronize(stream);
  }
  bool passed(EventView event, Patience patience) override {
    waits += patience == Patience::kUntilPassed ? 1 : 0;
    return WrappedDevice::passed(event, patience);
  }

 private:
  const std::unique_ptr<Device> owned_;
};

TEST_P(PagesTest, ManyPagesWaitAsOneDoes) {
  DeviceOptions options;
  options.name = GetParam();
  auto device = std::make_unique<WaitCountingDevice>(open_device(options));
  int& waits = device->waits;
  RuntimeRun run(std::move(device), setup_of(GetParam()));
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  run.prefill(id, 1, 640, 96);
  const auto waits_of = [&](const std::function<void()>& call) {
    waits = 0;
    call();
    return waits;
  };
  std::vector<SavedPage> pages;
  const int exporting = waits_of([&] { pages = save(runtime, id, 10); });
  // What has passed is not waited for again: one wait a range is left, that for its copies.
  EXPECT_GT(exporting, 1);
  EXPECT_EQ(waits_of([&] { save(runtime, id, 1); }), 10);
  const SequenceId all = runtime.create(), each = runtime.create();
  runtime.reserve(all, 640, 1);
  runtime.reserve(each, 640, 1);
  const int importing = waits_of([&] { load(runtime, all, pages, 640, 0, 10); });
  EXPECT_EQ(waits_of([&] { load(runtime, each, pages, 640, 0, 1); }), 10 * importing);
  EXPECT_EQ(run.decode(all, 2, 5), run.decode(each, 2, 5));
}

INSTANTIATE_TEST_SUITE_P(Devices, PagesTest, ::testing::Values("cpu", "emulated"));

// --- contents that come later ---

struct Sourced {
  RuntimeRun run;
  SequenceId whole, lacking;
  std::vector<SavedPage> pages;
  std::shared_ptr<SavedRows> pending;

  explicit Sourced(RunSetup setup = setup_of("cpu"), int64_t tokens = 1000) : run(setup) {
    Runtime& runtime = run.runtime();
    whole = runtime.create();
    run.prefill(whole, 1, tokens, 96);
    pages = save(runtime, whole);
    pending = std::make_shared<SavedRows>(pages);
    lacking = runtime.create();
    const int64_t later = pages_of(tokens) - 1;
    runtime.exchange().attach_pages(lacking, pending, later);
    load(runtime, lacking, pages, tokens, later);
  }
  int64_t all_bytes() const { return std::ssize(pages) * std::ssize(pages[0].rows); }
};

TEST(PendingPagesTest, DecodeStepsFetchWhatTheySelect) {
  for (const int64_t low_bit : {int64_t{0}, int64_t{60}, kAllOthers}) {
    for (const int shared : {0, 1}) {
      Sourced both(setup_of("cpu", low_bit, shared));
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(both.run.decode(both.lacking, 2, 1), both.run.decode(both.whole, 2, 1)) << i;
      }
      EXPECT_GT(both.pending->bytes, 0);
      EXPECT_LT(both.pending->bytes, both.all_bytes() / (shared == 0 ? 2 : 1));
      EXPECT_TRUE(both.run.runtime().info(both.lacking).pending);
    }
  }
}

TEST(PendingPagesTest, DenseLayersAndFullAttentionFetchAll) {
  RunSetup dense = setup_of("cpu");
  dense.dense_layers = {1};
  RunSetup full = setup_of("cpu");
  full.kind = SelectionKind::kFull;
  for (const RunSetup& setup : {dense, full}) {
    Sourced both(setup);
    EXPECT_EQ(both.run.decode(both.lacking, 2, 4), both.run.decode(both.whole, 2, 4));
  }
}

// In one step with other sequences, with several of its tokens at a time.
TEST(PendingPagesTest, StepsOfManyFetchForEach) {
  Sourced both;
  Runtime& runtime = both.run.runtime();
  const SequenceId other = runtime.create(), same = runtime.create();
  both.run.prefill(other, 5, 200, 96);
  both.run.prefill(same, 5, 200, 96);
  const int most = runtime.info(both.whole).max_decoded;
  EXPECT_GT(most, 1);
  const auto step = [&](SequenceId first, SequenceId second) {
    const Part parts[] = {{second, 6, runtime.length(second), 1, StepMode::kDecode},
                          {first, 2, runtime.length(first), most, StepMode::kDecode}};
    return both.run.tape().step(parts);
  };
  EXPECT_EQ(step(both.lacking, other), step(both.whole, same));
}

// Forks, truncations, prefill, reading back and saving fetch the rows that they need.
TEST(PendingPagesTest, WhatLacksRowsIsASequenceLikeOthers) {
  const std::vector<std::function<Outputs(RuntimeRun&, SequenceId)>> uses = {
      [](RuntimeRun& run, SequenceId id) { return run.prefill(id, 3, 100, 40); },
      [](RuntimeRun& run, SequenceId id) {
        const SequenceId fork = run.runtime().fork(id, 500);
        Outputs all = run.decode(fork, 4, 70);
        for (auto& one : run.decode(id, 2, 30)) all.push_back(one);
        for (auto& one : run.prefill(fork, 3, 20, 40)) all.push_back(one);
        for (auto& one : run.decode(id, 2, 3)) all.push_back(one);
        return all;
      },
      [](RuntimeRun& run, SequenceId id) {
        run.runtime().truncate(id, 640);
        Outputs all = run.decode(id, 4, 3);
        run.runtime().truncate(id, 333);
        for (auto& one : run.decode(id, 2, 80)) all.push_back(one);
        return all;
      },
      [](RuntimeRun& run, SequenceId id) {
        run.decode(id, 2, 5);
        Outputs all;
        for (const SavedPage& page : save(run.runtime(), id)) {
          std::vector<float>& bytes = all.emplace_back();
          for (const std::byte byte : page.rows) bytes.push_back(static_cast<float>(byte));
        }
        return all;
      },
  };
  for (size_t use = 0; use < uses.size(); ++use) {
    Sourced both;
    const Outputs lacking = uses[use](both.run, both.lacking);
    EXPECT_EQ(lacking, uses[use](both.run, both.whole)) << use;
  }
}

TEST(PendingPagesTest, FetchesTheRestInPieces) {
  Sourced both;
  int calls = 1;
  while (!both.run.runtime().exchange().load_more(both.lacking, 1)) ++calls;
  EXPECT_EQ(calls, 15);
  EXPECT_FALSE(both.run.runtime().info(both.lacking).pending);
  EXPECT_EQ(both.run.prefill(both.lacking, 3, 50, 50), both.run.prefill(both.whole, 3, 50, 50));
}

// A fetch that fails in any layer of a step leaves all sequences as they were before the step.
TEST(PendingPagesTest, AFailedFetchLeavesOthersAsTheyWere) {
  for (int fetches = 0; fetches < 3; ++fetches) {
    Sourced both;
    Runtime& runtime = both.run.runtime();
    both.pending->fail_after(fetches);
    const Part parts[] = {{both.whole, 2, 1000, 1, StepMode::kDecode},
                          {both.lacking, 2, 1000, 1, StepMode::kDecode}};
    EXPECT_THROW(both.run.tape().step(parts), InputError) << fetches;
    runtime.abort_step();
    EXPECT_TRUE(runtime.info(both.lacking).lost);
    EXPECT_FALSE(runtime.info(both.whole).lost);
    EXPECT_EQ(runtime.length(both.whole), 1000);
    EXPECT_EQ(runtime.length(both.lacking), 1000);
    runtime.free(both.lacking);
    Sourced fresh;
    EXPECT_EQ(both.run.decode(both.whole, 2, 5), fresh.run.decode(fresh.whole, 2, 5)) << fetches;
  }
}

TEST(PendingPagesTest, DevicesThatCannotWaitRefuse) {
  RuntimeRun run(setup_of("emulated"));
  const SequenceId id = run.runtime().create();
  EXPECT_FALSE(run.runtime().traits().loads_on_demand);
  const std::vector<SavedPage> none;
  EXPECT_THROW(run.runtime().exchange().attach_pages(id, std::make_shared<SavedRows>(none), 1),
               UsageError);
}

}  // namespace
}  // namespace fasa::testing
