// The paged door against the sequences door: the same tokens give the same bits, whatever pages
// they came to lie in, in which order, and whose ids these were before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "runtime/base/error.h"
#include "tests/support/device_tensors.h"
#include "tests/support/faulty_device.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;

struct PagedSetup {
  const char* device = "cpu";
  int page_size = 64;
  int64_t pages = 24;
  RowPlacement rows = RowPlacement::kHost;
  std::optional<int> hot_rows = 64;
  SliceDType slice = SliceDType::kInt2;
  SelectionKind kind = SelectionKind::kFasa;
  std::vector<int> dense_layers = {};
  int max_sequences = 64;
  std::optional<uint64_t> device_memory = std::nullopt;
};

Config config_of(const PagedSetup& setup) {
  Config config;
  config.selection.kind = setup.kind;
  config.selection.slice_dtype = setup.slice;
  config.selection.fac_tokens = {{.tokens = 48, .share = 0}};
  config.selection.sinks = 3;
  config.selection.recent = 5;
  config.selection.dense_layers = setup.dense_layers;
  config.placement.rows = setup.rows;
  config.placement.hot_rows = setup.hot_rows;
  return config;
}

std::unique_ptr<Device> open(const PagedSetup& setup) {
  DeviceOptions options;
  options.name = setup.device;
  options.threads = 2;
  options.device_memory = setup.device_memory;
  return open_device(options);
}

// A sequence as an engine has it: what its tokens are, and where they lie.
struct Sequence {
  std::vector<uint64_t> seeds;  // of the token at each position
  std::vector<int32_t> pages;
  int64_t length() const { return static_cast<int64_t>(seeds.size()); }
};

// New tokens of some sequences, side by side as a call takes them.
struct Token {
  uint64_t seed;
  int64_t position;
};

class Engine {
 public:
  explicit Engine(const PagedSetup& setup)
      : setup_(setup),
        device_(open(setup)),
        tensors_(*device_),
        paged_(*device_, config_of(setup), small_geometry(), DType::kBF16,
               all_slice_dims(small_geometry()),
               {.page_size = setup.page_size,
                .num_pages = setup.pages,
                .max_sequences = setup.max_sequences}),
        references_(static_cast<size_t>(setup.pages), 0) {
    for (int64_t page = setup.pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
  }

  PagedRuntime& paged() { return paged_; }
  DeviceTensors& tensors() { return tensors_; }
  Device& device() { return *device_; }
  const Geometry& geometry() const { return paged_.geometry(); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t pages_for(int64_t tokens) const {
    return (tokens + setup_.page_size - 1) / setup_.page_size;
  }

  // Where the next tokens of `sequence` go; takes pages, and copies the last one if others have it.
  std::vector<int64_t> place(Sequence& sequence, int64_t tokens, uint64_t seed) {
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t position = sequence.length();
      const int64_t offset = position % setup_.page_size;
      if (offset == 0) {
        sequence.pages.push_back(take());
      } else if (references_[static_cast<size_t>(sequence.pages.back())] > 1) {
        const int32_t own = take();
        const PageCopy copy{sequence.pages.back(), own};
        paged_.copy_pages({&copy, 1});
        --references_[static_cast<size_t>(sequence.pages.back())];
        sequence.pages.back() = own;
      }
      slots.push_back(int64_t{sequence.pages.back()} * setup_.page_size + offset);
      sequence.seeds.push_back(seed);
    }
    return slots;
  }
  Sequence fork(const Sequence& parent) {
    for (const int32_t page : parent.pages) ++references_[static_cast<size_t>(page)];
    return parent;
  }
  std::vector<int64_t> release(Sequence& sequence) {
    std::vector<int64_t> freed;
    for (const int32_t page : sequence.pages) {
      if (--references_[static_cast<size_t>(page)] > 0) continue;
      free_.push_back(page);
      freed.push_back(page);
    }
    sequence = {};
    return freed;
  }

  TensorView tensor(const std::vector<Token>& tokens, int layer, TapeKind kind, int heads,
                    int dim) {
    std::vector<std::byte> host(tokens.size() * static_cast<size_t>(heads * dim) * 4);
    int64_t at = 0;
    for (const Token& token : tokens) {
      for (int i = 0; i < heads * dim; ++i) {
        store_element(DType::kF32, host.data(), at++,
                      tape_value(token.seed, layer, token.position, kind, i));
      }
    }
    return TensorView::dense(tensors_.upload(host), DType::kF32,
                             static_cast<int64_t>(tokens.size()), heads, dim);
  }
  void append(int layer, const std::vector<Token>& tokens, const std::vector<int64_t>& slots) {
    const Geometry& g = geometry();
    paged_.append(layer, tensor(tokens, layer, TapeKind::kKey, g.kv_heads, g.key_dim),
                  tensor(tokens, layer, TapeKind::kValue, g.kv_heads, g.value_dim), slots,
                  tensors_.stream());
  }
  void append_all(const std::vector<Token>& tokens, const std::vector<int64_t>& slots) {
    for (int layer = 0; layer < geometry().layers; ++layer) append(layer, tokens, slots);
    tensors_.synchronize();
    tensors_.clear();
  }

  // The newest tokens' attention of one layer, [sequence][query heads x value_dim].
  std::vector<std::vector<float>> attend(int layer, const std::vector<const Sequence*>& batch,
                                         std::vector<int32_t> lengths = {}) {
    const Geometry& g = geometry();
    std::vector<Token> queries;
    size_t columns = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (lengths.size() <= i) lengths.push_back(static_cast<int32_t>(batch[i]->length()));
      columns = std::max(columns, batch[i]->pages.size());
      queries.push_back({batch[i]->seeds[static_cast<size_t>(lengths[i] - 1)], lengths[i] - 1});
    }
    std::vector<int32_t> table(batch.size() * (columns + 3), -7);  // what is unused means nothing
    for (size_t i = 0; i < batch.size(); ++i) {
      std::copy(batch[i]->pages.begin(), batch[i]->pages.end(),
                table.begin() + static_cast<int64_t>(i * (columns + 3)));
    }
    const auto count = static_cast<int64_t>(batch.size());
    const TensorView out = tensors_.zeros(count, g.query_heads, g.value_dim);
    paged_.attend(
        layer, tensor(queries, layer, TapeKind::kQuery, g.query_heads, g.key_dim),
        {table.data(), count, static_cast<int64_t>(columns), static_cast<int64_t>(columns + 3)},
        lengths, out, nullptr, tensors_.stream());
    const std::vector<float> all = tensors_.values(out);
    std::vector<std::vector<float>> parts;
    const int64_t width = g.query_heads * g.value_dim;
    for (int64_t i = 0; i < count; ++i) {
      parts.emplace_back(all.begin() + i * width, all.begin() + (i + 1) * width);
    }
    return parts;
  }

 private:
  int32_t take() {
    const int32_t page = free_.back();
    free_.pop_back();
    references_[static_cast<size_t>(page)] = 1;
    return page;
  }

  const PagedSetup setup_;
  std::unique_ptr<Device> device_;
  DeviceTensors tensors_;
  PagedRuntime paged_;
  std::vector<int> references_;
  std::vector<int32_t> free_;  // the last one freed is taken first: ids come again soon
};

// The same tokens through the sequences door: [layer][query heads x value_dim] of the newest.
class Reference {
 public:
  explicit Reference(const PagedSetup& setup)
      : device_(open({.device = "cpu"})),
        tensors_(*device_),
        runtime_(*device_, config_of(setup), small_geometry(), DType::kBF16,
                 all_slice_dims(small_geometry())) {}

  std::vector<std::vector<float>> newest(const std::vector<uint64_t>& seeds) {
    const auto found = known_.find(seeds);
    if (found != known_.end()) return found->second;
    const SequenceId id = runtime_.create();
    const auto length = static_cast<int64_t>(seeds.size());
    if (length > 1) step(id, seeds, 0, length - 1, StepMode::kPrefill);
    auto outputs = step(id, seeds, length - 1, 1, StepMode::kDecode);
    runtime_.free(id);
    tensors_.clear();
    return known_[seeds] = outputs;
  }

 private:
  TensorView tensor(const std::vector<uint64_t>& seeds, int64_t first, int64_t count, int layer,
                    TapeKind kind, int heads, int dim) {
    std::vector<std::byte> host(static_cast<size_t>(count * heads * dim * 4));
    int64_t at = 0;
    for (int64_t t = first; t < first + count; ++t) {
      for (int i = 0; i < heads * dim; ++i) {
        store_element(DType::kF32, host.data(), at++,
                      tape_value(seeds[static_cast<size_t>(t)], layer, t, kind, i));
      }
    }
    return TensorView::dense(tensors_.upload(host), DType::kF32, count, heads, dim);
  }
  std::vector<std::vector<float>> step(SequenceId id, const std::vector<uint64_t>& seeds,
                                       int64_t first, int64_t count, StepMode mode) {
    const Geometry& g = runtime_.geometry();
    const StepSequence part{id, static_cast<int>(count), mode};
    runtime_.begin_step({&part, 1});
    std::vector<std::vector<float>> outputs;
    for (int layer = 0; layer < g.layers; ++layer) {
      const auto of = [&](TapeKind kind, int heads, int dim) {
        return tensor(seeds, first, count, layer, kind, heads, dim);
      };
      runtime_.append(layer, of(TapeKind::kKey, g.kv_heads, g.key_dim),
                      of(TapeKind::kValue, g.kv_heads, g.value_dim), tensors_.stream());
      if (mode == StepMode::kPrefill) continue;
      const TensorView out = tensors_.zeros(count, g.query_heads, g.value_dim);
      runtime_.attend(layer, of(TapeKind::kQuery, g.query_heads, g.key_dim), out, nullptr,
                      tensors_.stream());
      outputs.push_back(tensors_.values(out));
    }
    runtime_.end_step();
    return outputs;
  }

  std::unique_ptr<Device> device_;
  DeviceTensors tensors_;
  Runtime runtime_;
  std::map<std::vector<uint64_t>, std::vector<std::vector<float>>> known_;
};

// Prompts, decodes of some, forks, ends: pages are shared, copied, dropped, and their ids come
// again.
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
  // `count` new tokens of each, in one call a layer.
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
    // A page to begin, and one to copy.
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
      {.page_size = 16, .pages = 90},
      {.device = "emulated", .page_size = 16, .pages = 90},
      {.device = "emulated", .page_size = 32, .pages = 45, .hot_rows = 0, .dense_layers = {1}},
      {.device = "emulated",
       .page_size = 32,
       .pages = 45,
       .rows = RowPlacement::kDevice,
       .slice = SliceDType::kInt8,
       .dense_layers = {0},
       .max_sequences = 2},
      {.device = "emulated", .page_size = 16, .pages = 90, .kind = SelectionKind::kFull},
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
  EXPECT_GT(metrics.rows.hits, 200u);  // the first step finds none
  EXPECT_EQ(metrics.bytes.write_back, 4u * 6 * 64);
}

// The end of a prefix that others went on from, at every length, with and without a tail.
TEST(Paged, EveryLengthOfStoredPages) {
  for (const int page_size : {16, 32, 64, 128}) {
    const PagedSetup setup{.device = "emulated", .page_size = page_size, .pages = 1200 / page_size};
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
                                      "0, which starts the page anew"));
  EXPECT_EQ(append({64, 65}), "nothing was thrown");
  EXPECT_THAT(append({67}), HasSubstr("holds 2 tokens; allowed: 2, the next, or 0"));
  EXPECT_THAT(append({65}), HasSubstr("holds 2 tokens"));  // not twice, either
  EXPECT_THAT(append({66}, 1), HasSubstr("layer 1, which holds 0"));
  EXPECT_THAT(append({256}), HasSubstr("slot_mapping[0] = 256: allowed: 0 to 255 (4 pages of 64"));
  EXPECT_THAT(append({0, 128, 1}), HasSubstr("stand side by side"));
  EXPECT_THAT(append({1, 0}), HasSubstr("stand side by side"));
  EXPECT_THAT(append({0}, 3), HasSubstr("append of layer 3; allowed: 0 to 2"));
  EXPECT_EQ(engine_.paged().held(0, 0), 0);  // of what was refused nothing was stored
  EXPECT_EQ(engine_.paged().held(1, 0), 2);
  EXPECT_EQ(append({66}), "nothing was thrown");
}

TEST_F(PagedErrors, LengthsAndTables) {
  EXPECT_EQ(append({64, 65}), "nothing was thrown");
  EXPECT_THAT(attend({1}, 3), HasSubstr("its page 0 (id 1) holds 2 tokens of layer 0, 3 are read"));
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
  EXPECT_THAT(copy(0, 1), HasSubstr("copy between steps"));
  EXPECT_THAT(copy(0, 9), HasSubstr("page 9: allowed: 0 to 3"));
  EXPECT_THAT(copy(2, 2), HasSubstr("page 2 onto itself"));
  EXPECT_EQ(copy(2, 3), "nothing was thrown");  // of nothing
}

TEST_F(PagedErrors, Shapes) {
  const auto device = open({});
  const auto shaped = [&](const PagedShape& shape) {
    return message([&] {
      PagedRuntime paged(*device, config_of({}), small_geometry(), DType::kBF16,
                         all_slice_dims(small_geometry()), shape);
    });
  };
  EXPECT_THAT(shaped({.page_size = 48, .num_pages = 4}), HasSubstr("page_size = 48: allowed: 16"));
  EXPECT_THAT(shaped({.page_size = 320, .num_pages = 4}), HasSubstr("page_size = 320"));
  EXPECT_THAT(shaped({.page_size = 64, .num_pages = 0}), HasSubstr("num_pages = 0"));
  EXPECT_THAT(shaped({.page_size = 64, .num_pages = 4, .max_sequences = 0}),
              HasSubstr("max_sequences = 0"));
}

// A budget that allows few views: more sequences take their turns, and nothing is lost.
TEST(Paged, BudgetsHold) {
  int ran = 0;
  int refused = 0;
  for (uint64_t limit = 100000; limit < 900000; limit += 100000) {
    const PagedSetup setup{.device = "emulated", .device_memory = limit};
    try {
      Schedule schedule(setup, 3);
      schedule.run(40);
      EXPECT_LE(schedule.engine().device().memory(MemorySpace::kDevice).peak_bytes, limit);
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
