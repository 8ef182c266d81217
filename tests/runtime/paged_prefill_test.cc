// Prompts over a caller's pages give the bits of a prompt that the sequences API takes at once,
// however the prompt is split, in whatever pages it lies, and whichever sequence of the step writes
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"
#include "tests/support/paged_engine.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;

// Steps like a serving engine's: prompt chunks beside decodes, prompts that share the first pages
// of others (of the same step too), and ends of sequences.
class PromptSchedule {
 public:
  PromptSchedule(const PagedSetup& setup, unsigned seed)
      : setup_(setup), engine_(setup), reference_(setup), random_(seed) {}

  void run(int rounds) {
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) step(round);
    EXPECT_GT(prompts_, rounds / 2);
    EXPECT_GT(decodes_, rounds / 4);
    EXPECT_GT(shared_, 0);
  }

 private:
  struct Work {
    size_t live;
    int32_t tokens;
    bool decodes;
  };
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void end(size_t at) {
    const auto freed = engine_.release(live_[at]);
    if (pick(2) == 0) engine_.paged().drop_pages(freed);
    live_.erase(live_.begin() + static_cast<int64_t>(at));
  }
  // Adds a sequence, empty or with the first pages of another.
  void begin(bool in_step, size_t donor) {
    Sequence sequence;
    if (in_step) {
      const int64_t full = live_[donor].length() / setup_.page_size;
      const int64_t pages = full > 0 ? 1 + pick(static_cast<int>(full)) : 0;
      sequence = engine_.share(live_[donor], pages);
      shared_ += pages > 0;
    }
    live_.push_back(std::move(sequence));
  }
  void add(size_t live, int32_t tokens, bool decodes) {
    const uint64_t seed = 10 + random_() % 50;
    const int64_t first = live_[live].length();
    for (const int64_t slot : engine_.place(live_[live], tokens, seed)) slots_.push_back(slot);
    for (int64_t i = 0; i < tokens; ++i) tokens_.push_back({seed, first + i});
    work_.push_back({live, tokens, decodes});
  }
  bool room_for(int64_t tokens) const {
    return engine_.pages_for(tokens) + 2 <= engine_.free_pages();
  }

  void step(int round) {
    while (live_.size() > 4 || (!live_.empty() && !room_for(160))) {
      end(static_cast<size_t>(pick(static_cast<int>(live_.size()))));
    }
    tokens_.clear();
    slots_.clear();
    work_.clear();
    for (size_t i = 0; i < live_.size(); ++i) {
      const bool decodes = live_[i].length() > 0 && pick(2) == 0;
      const int32_t tokens = decodes ? 1 : 1 + pick(150);
      if (pick(3) > 0 && room_for(tokens)) add(i, tokens, decodes);
    }
    if (live_.size() < 5) {
      const bool shares = !live_.empty() && pick(3) > 0;
      begin(shares, live_.empty() ? 0 : static_cast<size_t>(pick(static_cast<int>(live_.size()))));
      const int32_t tokens = 1 + pick(150);
      if (room_for(tokens)) add(live_.size() - 1, tokens, false);
    }
    for (int layer = 0; layer < engine_.geometry().layers && !work_.empty(); ++layer) {
      attend(layer, round);
    }
    engine_.tensors().clear();
    std::erase_if(live_, [](const Sequence& sequence) { return sequence.length() == 0; });
  }
  void attend(int layer, int round) {
    engine_.append(layer, tokens_, slots_);
    std::vector<const Sequence*> decoding, prompts;
    std::vector<int32_t> query_lens;
    for (const Work& work : work_) {
      (work.decodes ? decoding : prompts).push_back(&live_[work.live]);
      if (!work.decodes) query_lens.push_back(work.tokens);
    }
    const auto at = static_cast<size_t>(layer);
    if (!decoding.empty()) {
      const auto got = engine_.attend(layer, decoding);
      for (size_t i = 0; i < got.size(); ++i, ++decodes_) {
        EXPECT_TRUE(same_bits(got[i], reference_.newest(decoding[i]->seeds)[at]))
            << "round " << round << " decode " << i << " layer " << layer;
      }
    }
    if (prompts.empty()) return;
    const auto got = engine_.prefill(layer, prompts, query_lens);
    for (size_t i = 0; i < got.size(); ++i, ++prompts_) {
      const auto all = reference_.prompt(prompts[i]->seeds)[at];
      const std::vector<float> newest(all.end() - static_cast<int64_t>(got[i].size()), all.end());
      EXPECT_TRUE(same_bits(got[i], newest))
          << "round " << round << " prompt " << i << " of " << query_lens[i] << " behind "
          << prompts[i]->length() - query_lens[i] << " layer " << layer;
    }
  }

  const PagedSetup setup_;
  Engine engine_;
  Reference reference_;
  std::mt19937 random_;
  std::vector<Sequence> live_;
  std::vector<Token> tokens_;
  std::vector<int64_t> slots_;
  std::vector<Work> work_;
  int prompts_ = 0, decodes_ = 0, shared_ = 0;
};

TEST(PagedPrefill, RandomStepsGiveTheBitsOfSequences) {
  const std::vector<PagedSetup> setups = {
      {},
      {.page_size = 128, .pages = 14},
      {.kind = SelectionKind::kFull},
      {.device = "emulated"},
      {.device = "emulated", .page_size = 192, .pages = 12, .hot_rows = 30},
      {.device = "emulated", .page_size = 256, .pages = 10, .rows = RowPlacement::kDevice},
      {.device = "emulated", .kind = SelectionKind::kFull, .max_sequences = 2},
      {.device = "emulated", .rows = RowPlacement::kDevice},
      {.device = "emulated", .row_dtype = RowDType::kInt8, .dense_layers = {1}},
      {.row_dtype = RowDType::kInt8},
  };
  for (const PagedSetup& setup : setups) {
    SCOPED_TRACE(::testing::Message() << setup.device << " pages of " << setup.page_size);
    PromptSchedule(setup, 1).run(40);
  }
}

TEST(PagedPrefill, RandomStepsOnCuda) {
  const std::vector<PagedSetup> setups = {
      {.device = "cuda:0"},
      {.device = "cuda:0", .rows = RowPlacement::kDevice},
      {.device = "cuda:0", .interpreted = true, .page_size = 128, .pages = 14},
  };
  for (const PagedSetup& setup : setups) {
    SCOPED_TRACE(::testing::Message()
                 << "pages of " << setup.page_size << " interpreted " << setup.interpreted);
    PromptSchedule(setup, 1).run(setup.interpreted ? 8 : 40);
  }
}

// More pages than are streamed at a time.
TEST(PagedPrefill, ALongPastComesInWaves) {
  for (const int page_size : {64, 256}) {
    for (const char* device : {"cpu", "emulated"}) {
      const PagedSetup setup{.device = device, .page_size = page_size, .pages = 2500 / page_size};
      Engine engine(setup);
      Reference reference(setup);
      Sequence sequence;
      std::vector<Token> tokens;
      const auto slots = engine.place(sequence, 2300, 5);
      for (int64_t i = 0; i < 2300; ++i) tokens.push_back({5, i});
      engine.append_all(tokens, slots);
      for (const int32_t newest : {1, 100, 700}) {
        const auto got = engine.prefill(1, {&sequence}, {newest});
        const auto all = reference.prompt(sequence.seeds)[1];
        const std::vector<float> last(all.end() - static_cast<int64_t>(got[0].size()), all.end());
        EXPECT_TRUE(same_bits(got[0], last)) << device << " " << page_size << " " << newest;
      }
    }
  }
}

TEST(PagedPrefill, WhatAPageHolds) {
  for (const int page_size : {64, 192}) {
    const PagedSetup setup{
        .device = "emulated", .page_size = page_size, .pages = 4, .row_dtype = RowDType::kF32};
    Engine engine(setup);
    Sequence sequence;
    const auto slots = engine.place(sequence, page_size - 3, 5);
    std::vector<Token> tokens;
    for (int64_t i = 0; i < page_size - 3; ++i) tokens.push_back({5, i});
    engine.append_all(tokens, slots);
    const int32_t page = sequence.pages[0];
    EXPECT_EQ(engine.paged().held(page, 2), page_size - 3);
    const Geometry& g = engine.geometry();
    DeviceTensors& tensors = engine.tensors();
    const int first = 5, count = page_size - 3 - first;
    const TensorView k = tensors.zeros(count, g.kv_heads, g.key_dim);
    const TensorView v = tensors.zeros(count, g.kv_heads, g.value_dim);
    engine.paged().read(page, 2, first, k, v, tensors.stream());
    const std::vector<Token> rest(tokens.begin() + first, tokens.end());
    EXPECT_EQ(tensors.values(k),
              tensors.values(engine.tensor(rest, 2, TapeKind::kKey, g.kv_heads, g.key_dim)));
    EXPECT_EQ(tensors.values(v),
              tensors.values(engine.tensor(rest, 2, TapeKind::kValue, g.kv_heads, g.value_dim)));
    EXPECT_THROW(engine.paged().read(page, 2, first + 1, k, v, tensors.stream()), UsageError);
    EXPECT_THROW(engine.paged().read(page, 3, first, k, v, tensors.stream()), UsageError);
    EXPECT_THROW(engine.paged().read(4, 2, first, k, v, tensors.stream()), UsageError);
    EXPECT_THROW(engine.paged().read(page, 2, -1, k, v, tensors.stream()), UsageError);
  }
}

// Memory in use once all sequences have the announced lengths is within the estimate made before.
TEST(PagedPrefill, SizesBeforeThereAreAny) {
  for (const char* device : {"cpu", "emulated"}) {
    for (const int page_size : {64, 128}) {
      const PagedSetup setup{.device = device,
                             .page_size = page_size,
                             .pages = 2 * 512 / page_size,
                             .max_sequences = 2};
      const auto opened = open_device(options_of(setup));
      const PagedSizes sizes =
          PagedRuntime::sizes(*opened, config_of(setup), small_geometry(), RowDType::kBF16,
                              {.page_size = page_size, .max_sequences = 2}, 512, 1024);
      Engine engine(setup);
      const KvMemory empty = engine.paged().memory();
      const auto pages = static_cast<uint64_t>(setup.pages);
      EXPECT_EQ(empty.device_rows + empty.host_rows,
                pages * (sizes.page.device_rows + sizes.page.host_rows));
      EXPECT_EQ(empty.device_slices, pages * sizes.page.device_slices);
      std::vector<Sequence> sequences(2);
      std::vector<Token> tokens;
      std::vector<int64_t> slots;
      for (Sequence& sequence : sequences) {
        for (const int64_t slot : engine.place(sequence, 511, 5)) slots.push_back(slot);
        for (int64_t i = 0; i < 511; ++i) tokens.push_back({5, i});
      }
      for (int layer = 0; layer < 3; ++layer) {
        engine.append(layer, tokens, slots);
        engine.prefill(layer, {&sequences[0], &sequences[1]}, {511, 511});
      }
      tokens.clear();
      slots.clear();
      for (Sequence& sequence : sequences) {
        slots.push_back(engine.place(sequence, 1, 5)[0]);
        tokens.push_back({5, 511});
      }
      for (int layer = 0; layer < 3; ++layer) {
        engine.append(layer, tokens, slots);
        engine.attend(layer, {&sequences[0], &sequences[1]});
      }
      const KvMemory full = engine.paged().memory();
      EXPECT_LE(full.device_slices, pages * sizes.page.device_slices + sizes.fixed.device_slices);
      EXPECT_LE(full.device_hot_rows, sizes.fixed.device_hot_rows);
      EXPECT_LE(full.device_scratch, sizes.fixed.device_scratch) << device << page_size;
      EXPECT_LE(full.host_tables, sizes.fixed.host_tables);
      EXPECT_GT(3 * (full.device_total() + full.host_total()),
                sizes.fixed.device_total() + sizes.fixed.host_total() +
                    pages * (sizes.page.device_total() + sizes.page.host_total()));
    }
  }
}

TEST(PagedPrefill, AFailedCallChangesNothing) {
  for (const int page_size : {64, 192}) {
    const PagedSetup setup{.device = "emulated", .page_size = page_size, .pages = 600 / page_size};
    Reference reference(setup);
    bool fired = true;
    int failed = 0;
    for (int64_t nth = 1; fired; ++nth) {
      Engine engine(setup);
      Sequence sequence;
      std::vector<Token> tokens;
      const auto slots = engine.place(sequence, 150, 5);
      for (int64_t i = 0; i < 150; ++i) tokens.push_back({5, i});
      engine.device().fail_allocation(nth);
      const auto again = [&](const auto& call) {
        try {
          call();
        } catch (const BudgetError&) {
          ++failed;
          call();
        }
      };
      for (int layer = 0; layer < 3; ++layer) {
        again([&] { engine.append(layer, tokens, slots); });
        std::vector<std::vector<float>> got;
        again([&] { got = engine.prefill(layer, {&sequence}, {150}); });
        EXPECT_TRUE(same_bits(got[0], reference.prompt(sequence.seeds)[static_cast<size_t>(layer)]))
            << nth;
      }
      fired = engine.device().fired();
    }
    EXPECT_GT(failed, 3);
  }
}

TEST(PagedPrefill, WhatIsRefused) {
  Engine engine({.device = "emulated", .pages = 4});
  Sequence sequence;
  const auto slots = engine.place(sequence, 3, 5);
  engine.append(0, {{5, 0}, {5, 1}, {5, 2}}, slots);
  const auto message = [&](std::vector<int32_t> query_lens, int layer = 0) -> std::string {
    try {
      engine.prefill(layer, {&sequence}, query_lens);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message({3}), "nothing was thrown");
  EXPECT_THAT(message({0}), HasSubstr("query_lens[0] = 0: allowed: 1 to seq_lens[0] = 3"));
  EXPECT_THAT(message({4}), HasSubstr("query_lens[0] = 4"));
  EXPECT_THAT(message({1, 1}), HasSubstr("2 query_lens for 1 seq_lens"));
  EXPECT_THAT(message({1}, 1), HasSubstr("holds 0 tokens of layer 1"));
  EXPECT_THAT(message({1}, 3), HasSubstr("prefill of layer 3; allowed: 0 to 2"));
  EXPECT_EQ(message({1}), "nothing was thrown");
}

}  // namespace
}  // namespace fasa::testing
