// The paged API against the sequences API: the same tokens give the same bits, whatever pages they
// are in, in any order, and whatever the page ids were used for before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"
#include "tests/support/paged_engine.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;

// Prompts, decodes of some sequences, forks, ends: pages are shared, copied and dropped, and their
// ids are reused.
class Schedule {
 public:
  Schedule(const PagedSetup& setup, unsigned seed)
      : engine_(setup), reference_(setup), random_(seed) {}

  void run(int rounds) {
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
      const int what = live_.empty() ? 0 : pick(8);
      if (what <= 1) {
        begin();
      } else if (what == 2) {
        fork();
      } else if (what == 3) {
        end();
      } else {
        decode(round);
      }
    }
    EXPECT_GT(compared_, rounds / 4);
  }
  Engine& engine() { return engine_; }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  size_t pick_live() { return static_cast<size_t>(pick(static_cast<int>(live_.size()))); }

  void begin() {
    const int64_t tokens = 1 + pick(200);
    if (live_.size() >= 5 || engine_.pages_for(tokens) > engine_.free_pages()) return end();
    Sequence sequence;
    while (sequence.length() < tokens) {
      const int64_t first = sequence.length();
      const int64_t chunk = std::min<int64_t>(tokens - first, 1 + pick(150));
      store({&sequence}, chunk);
    }
    live_.push_back(std::move(sequence));
  }
  // Stores `count` new tokens of each sequence, in one call per layer.
  std::vector<Token> store(const std::vector<Sequence*>& sequences, int64_t count,
                           std::vector<int64_t>* slots_out = nullptr) {
    std::vector<Token> tokens;
    std::vector<int64_t> slots;
    for (Sequence* sequence : sequences) {
      if (pick(4) == 0) {  // padding
        tokens.push_back({99, 0});
        slots.push_back(-1);
      }
      const uint64_t seed = 10 + random_() % 50;
      const int64_t first = sequence->length();
      for (const int64_t slot : engine_.place(*sequence, count, seed)) slots.push_back(slot);
      for (int64_t i = 0; i < count; ++i) tokens.push_back({seed, first + i});
    }
    if (slots_out != nullptr) {
      *slots_out = slots;
    } else {
      engine_.append_all(tokens, slots);
    }
    return tokens;
  }
  void fork() {
    if (live_.size() < 5) live_.push_back(engine_.fork(live_[pick_live()]));
  }
  void end() {
    if (live_.empty()) return;
    const size_t at = pick_live();
    const auto freed = engine_.release(live_[at]);
    if (pick(2) == 0) engine_.paged().drop_pages(freed);
    live_.erase(live_.begin() + static_cast<int64_t>(at));
  }
  void decode(int round) {
    std::vector<Sequence*> batch;
    for (Sequence& sequence : live_) {
      if (pick(3) > 0) batch.push_back(&sequence);
    }
    // One new page, and one page to copy.
    if (batch.empty() || static_cast<int64_t>(batch.size()) * 2 > engine_.free_pages()) {
      return end();
    }
    std::vector<int64_t> slots;
    const std::vector<Token> tokens = store(batch, 1, &slots);
    std::shuffle(batch.begin(), batch.end(), random_);
    const std::vector<const Sequence*> asked(batch.begin(), batch.end());
    for (int layer = 0; layer < engine_.geometry().layers; ++layer) {
      engine_.append(layer, tokens, slots);
      const auto got = engine_.attend(layer, asked);
      for (size_t i = 0; i < asked.size(); ++i) {
        ASSERT_TRUE(
            same_bits(got[i], reference_.newest(asked[i]->seeds)[static_cast<size_t>(layer)]))
            << "round " << round << " sequence " << i << " of " << asked[i]->length()
            << " tokens, layer " << layer;
        ++compared_;
      }
    }
    engine_.tensors().clear();
  }

  Engine engine_;
  Reference reference_;
  std::mt19937 random_;
  std::vector<Sequence> live_;
  int compared_ = 0;
};

TEST(Paged, RandomSchedulesGiveTheBitsOfSequences) {
  const std::vector<PagedSetup> setups = {
      {},
      {.page_size = 128, .pages = 14},
      {.device = "emulated"},
      {.device = "emulated", .hot_rows = 0},
      {.device = "emulated",
       .page_size = 192,
       .pages = 10,
       .hot_rows = 30,
       .slice = SliceDType::kBF16},
      {.device = "emulated", .page_size = 256, .pages = 9, .rows = RowPlacement::kDevice},
      {.device = "emulated", .rows = RowPlacement::kAuto, .dense_layers = {1}, .max_sequences = 2},
      {.device = "emulated", .kind = SelectionKind::kFull},
      {.device = "emulated", .hot_rows = 0, .dense_layers = {1}},
      {.device = "emulated",
       .rows = RowPlacement::kDevice,
       .slice = SliceDType::kInt8,
       .dense_layers = {0},
       .max_sequences = 2},
      {.low_bit_tokens = 60},
      {.device = "emulated", .page_size = 128, .pages = 14, .hot_rows = 0, .low_bit_tokens = 60},
      {.device = "emulated", .low_bit_tokens = 60},
      {.low_bit_tokens = kAllOthers},
      {.device = "emulated", .page_size = 128, .pages = 14, .low_bit_tokens = kAllOthers},
      {.device = "emulated", .row_dtype = RowDType::kInt8},
      {.page_size = 128, .pages = 14, .row_dtype = RowDType::kInt8},
      {.device = "emulated",
       .hot_rows = 20,
       .low_bit_tokens = 60,
       .row_dtype = RowDType::kInt8,
       .dense_layers = {1}},
  };
  for (const PagedSetup& setup : setups) {
    for (const unsigned seed : {1u, 2u}) {
      SCOPED_TRACE(::testing::Message()
                   << setup.device << " pages of " << setup.page_size << " hot rows "
                   << setup.hot_rows.value_or(-1) << " seed " << seed);
      Schedule(setup, seed).run(100);
    }
  }
}

TEST(Paged, RandomSchedulesOnCuda) {
  const std::vector<PagedSetup> setups = {
      {.device = "cuda:0"},
      {.device = "cuda:0", .hot_rows = 0, .dense_layers = {1}},
      {.device = "cuda:0", .rows = RowPlacement::kDevice},
      {.device = "cuda:0", .kind = SelectionKind::kFull},
      {.device = "cuda:0", .interpreted = true, .row_dtype = RowDType::kInt8},
      {.device = "cuda:0",
       .interpreted = true,
       .rows = RowPlacement::kDevice,
       .slice = SliceDType::kInt8,
       .dense_layers = {0}},
      {.device = "cuda:0", .interpreted = true, .page_size = 128, .pages = 14, .hot_rows = 30},
  };
  for (const PagedSetup& setup : setups) {
    SCOPED_TRACE(::testing::Message()
                 << "pages of " << setup.page_size << " hot rows " << setup.hot_rows.value_or(-1)
                 << " interpreted " << setup.interpreted);
    Schedule(setup, 1).run(setup.interpreted ? 20 : 60);
  }
}

TEST(Paged, HotRowsServeTheNextStep) {
  Engine engine({.device = "emulated", .hot_rows = 200});
  Sequence sequence;
  std::vector<Token> tokens;
  const auto slots = engine.place(sequence, 300, 5);
  for (int64_t i = 0; i < 300; ++i) tokens.push_back({5, i});
  engine.append_all(tokens, slots);
  engine.paged().reset_metrics();
  for (int step = 0; step < 4; ++step) {
    const auto slot = engine.place(sequence, 1, 5);
    for (int layer = 0; layer < 3; ++layer) {
      engine.append(layer, {{5, sequence.length() - 1}}, slot);
      engine.attend(layer, {&sequence});
    }
  }
  const FetchMetrics metrics = engine.paged().metrics();
  EXPECT_EQ(metrics.decode_steps, 4u);
  EXPECT_EQ(metrics.rows.hits + metrics.rows.misses, 4u * 6 * 48);
  EXPECT_GT(metrics.rows.hits, 200u);  // the first step has no hits
  EXPECT_EQ(metrics.bytes.write_back, 4u * 6 * 64);
}

// A prefix that other sequences continue from, ending at every length, with and without a tail.
TEST(Paged, EveryLengthOfStoredPages) {
  for (const int page_size : {64, 128, 192}) {
    const PagedSetup setup{.device = "emulated",
                           .page_size = page_size,
                           .pages = 1200 / page_size,
                           .row_dtype = page_size == 64 ? RowDType::kInt8 : RowDType::kBF16};
    Engine engine(setup);
    Reference reference(setup);
    Sequence sequence;
    std::vector<Token> tokens;
    const auto slots = engine.place(sequence, 200, 5);
    for (int64_t i = 0; i < 200; ++i) tokens.push_back({5, i});
    engine.append_all(tokens, slots);
    for (const int32_t length : {1, 63, 64, 65, 100, 128, 129, 150, 192, 199, 200}) {
      const std::vector<uint64_t> seeds(sequence.seeds.begin(), sequence.seeds.begin() + length);
      for (int layer = 0; layer < 3; ++layer) {
        const auto got = engine.attend(layer, {&sequence, &sequence}, {length, 200});
        EXPECT_TRUE(same_bits(got[0], reference.newest(seeds)[static_cast<size_t>(layer)]))
            << page_size << " " << length;
        EXPECT_TRUE(
            same_bits(got[1], reference.newest(sequence.seeds)[static_cast<size_t>(layer)]));
      }
    }
  }
}

class PagedErrors : public ::testing::Test {
 protected:
  template <typename F>
  std::string message(F&& call) {
    try {
      call();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string append(const std::vector<int64_t>& slots, int layer = 0) {
    std::vector<Token> tokens(slots.size(), Token{1, 0});
    return message([&] { engine_.append(layer, tokens, slots); });
  }
  std::string attend(std::vector<int32_t> pages, int32_t length, int layer = 0) {
    Sequence sequence{std::vector<uint64_t>(static_cast<size_t>(std::max(length, 1)), 1),
                      std::move(pages)};
    return message([&] { engine_.attend(layer, {&sequence}, {length}); });
  }
  Engine engine_{PagedSetup{.device = "emulated", .pages = 4}};
};

TEST_F(PagedErrors, SlotsPastAGap) {
  EXPECT_THAT(append({65}), HasSubstr("offset 1 of page 1, layer 0, which holds 0 tokens; allowed: "
                                      "0 (restarts the page)"));
  EXPECT_EQ(append({64, 65}), "nothing was thrown");
  EXPECT_THAT(append({67}), HasSubstr("holds 2 tokens; allowed: 2 (the next) or 0"));
  EXPECT_THAT(append({65}), HasSubstr("holds 2 tokens"));  // storing a token twice is an error, too
  EXPECT_THAT(append({66}, 1), HasSubstr("layer 1, which holds 0"));
  EXPECT_THAT(append({256}), HasSubstr("slot_mapping[0] = 256: allowed: 0 to 255 (4 pages of 64"));
  EXPECT_THAT(append({0, 128, 1}), HasSubstr("must be adjacent"));
  EXPECT_THAT(append({1, 0}), HasSubstr("must be adjacent"));
  EXPECT_THAT(append({0}, 3), HasSubstr("append of layer 3; allowed: 0 to 2"));
  EXPECT_EQ(engine_.paged().held(0, 0), 0);  // a refused call stores nothing
  EXPECT_EQ(engine_.paged().held(1, 0), 2);
  EXPECT_EQ(append({66}), "nothing was thrown");
}

TEST_F(PagedErrors, LengthsAndTables) {
  EXPECT_EQ(append({64, 65}), "nothing was thrown");
  EXPECT_THAT(attend({1}, 3),
              HasSubstr("page 0 (id 1) holds 2 tokens of layer 0, but 3 are needed"));
  EXPECT_THAT(attend({1}, 2, 1), HasSubstr("holds 0 tokens of layer 1"));
  EXPECT_THAT(attend({4}, 1), HasSubstr("page 4: allowed: 0 to 3"));
  EXPECT_THAT(attend({-1}, 1), HasSubstr("page -1: allowed"));
  EXPECT_THAT(attend({1}, 0), HasSubstr("seq_lens[0] = 0: allowed: 1 to 64"));
  EXPECT_THAT(attend({1}, 65), HasSubstr("seq_lens[0] = 65"));
  EXPECT_EQ(attend({1}, 2), "nothing was thrown");
  const int64_t dropped = 1;
  engine_.paged().drop_pages({&dropped, 1});
  EXPECT_THAT(attend({1}, 2), HasSubstr("holds 0 tokens"));
}

TEST_F(PagedErrors, Copies) {
  EXPECT_EQ(append({0}), "nothing was thrown");
  const auto copy = [&](int64_t from, int64_t to) {
    const PageCopy one{from, to};
    return message([&] { engine_.paged().copy_pages({&one, 1}); });
  };
  EXPECT_THAT(copy(0, 1), HasSubstr("call it between steps"));
  EXPECT_THAT(copy(0, 9), HasSubstr("page 9: allowed: 0 to 3"));
  EXPECT_THAT(copy(2, 2), HasSubstr("page 2 cannot be copied onto itself"));
  EXPECT_EQ(copy(2, 3), "nothing was thrown");  // no pages
}

TEST_F(PagedErrors, Shapes) {
  const auto device = open_device(options_of({}));
  const auto shaped = [&](const PagedShape& shape) {
    return message([&] {
      PagedRuntime paged(*device, config_of({}), small_geometry(), DType::kBF16,
                         all_slice_dims(small_geometry()), shape);
    });
  };
  EXPECT_THAT(shaped({.page_size = 48, .num_pages = 4}), HasSubstr("page_size = 48: allowed: 64"));
  EXPECT_THAT(shaped({.page_size = 320, .num_pages = 4}), HasSubstr("page_size = 320"));
  EXPECT_THAT(shaped({.page_size = 64, .num_pages = 0}), HasSubstr("num_pages = 0"));
  EXPECT_THAT(shaped({.page_size = 64, .num_pages = 4, .max_sequences = 0}),
              HasSubstr("max_sequences = 0"));
}

// Wherever memory runs out, nothing has changed and the call can be repeated.
TEST(Paged, AFailedCallChangesNothing) {
  const PagedSetup setup{.device = "emulated", .pages = 9};
  Reference reference(setup);
  int failed = 0;
  bool fired = true;
  for (int64_t nth = 1; fired; ++nth) {
    Engine engine(setup);
    Sequence first, second;
    std::vector<Token> tokens;
    std::vector<int64_t> slots = engine.place(first, 128, 5);
    for (int64_t i = 0; i < 128; ++i) tokens.push_back({5, i});
    for (const int64_t slot : engine.place(second, 100, 6)) slots.push_back(slot);
    for (int64_t i = 0; i < 100; ++i) tokens.push_back({6, i});
    engine.append_all(tokens, slots);
    Sequence forked = engine.fork(second);  // needs a page copy, and a new tail
    engine.device().fail_allocation(nth);
    const auto again = [&](const auto& call) {
      try {
        call();
      } catch (const BudgetError&) {
        ++failed;
        call();
      }
    };
    slots = engine.place(forked, 1, 7);
    tokens = {{7, 100}};
    for (const int64_t slot : engine.place(first, 1, 8)) slots.push_back(slot);
    tokens.push_back({8, 128});
    for (int layer = 0; layer < 3; ++layer) {
      again([&] { engine.append(layer, tokens, slots); });
      std::vector<std::vector<float>> got;
      again([&] { got = engine.attend(layer, {&forked, &second, &first}); });
      const auto at = static_cast<size_t>(layer);
      EXPECT_TRUE(same_bits(got[0], reference.newest(forked.seeds)[at])) << nth;
      EXPECT_TRUE(same_bits(got[1], reference.newest(second.seeds)[at])) << nth;
      EXPECT_TRUE(same_bits(got[2], reference.newest(first.seeds)[at])) << nth;
    }
    fired = engine.device().fired();
  }
  EXPECT_GT(failed, 5);
}

// Every later call reports the failed operation; no call crashes.
TEST(Paged, AFailedDeviceIsRemembered) {
  Engine engine({.device = "emulated", .pages = 4});
  Sequence sequence;
  const auto slots = engine.place(sequence, 2, 5);
  const std::vector<Token> tokens = {{5, 0}, {5, 1}};
  engine.append_all(tokens, slots);
  const Token query{5, 1};
  const Geometry& g = engine.geometry();
  const TensorView q = engine.tensor({query}, 0, TapeKind::kQuery, g.query_heads, g.key_dim);
  const TensorView out = engine.tensors().zeros(1, g.query_heads, g.value_dim);
  const int32_t page = sequence.pages[0], length = 2;
  const auto attend = [&] {
    engine.paged().attend(0, q, {&page, 1, 1, 1}, {&length, 1}, out, nullptr,
                          engine.tensors().stream());
  };
  engine.device().fail_copy(1);
  EXPECT_THROW(attend(), DeviceError);
  EXPECT_THROW(attend(), DeviceError);
  EXPECT_THROW(engine.append(0, tokens, slots), DeviceError);
}

// A budget that allows few views: the sequences take turns, and their results are correct.
TEST(Paged, BudgetsHold) {
  int ran = 0;
  int refused = 0;
  for (uint64_t limit = 100000; limit < 900000; limit += 100000) {
    const PagedSetup setup{.device = "emulated", .device_memory = limit};
    try {
      Schedule schedule(setup, 3);
      schedule.run(40);
      ++ran;
    } catch (const BudgetError& error) {
      EXPECT_EQ(error.limit(), "device_memory");
      ++refused;
    }
  }
  EXPECT_GT(ran, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace fasa::testing
