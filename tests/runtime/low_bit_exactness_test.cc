// The same invariants with a low-bit set, bit for bit: it depends on the tokens alone. Without one,
// or where the set covers the context, codes do not affect the output.
#include <gtest/gtest.h>

#include "offload/open_device.h"
#include "offload/wrapped_device.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

constexpr int kPrompt = 333;

using Outputs = std::vector<std::vector<float>>;

// Decode steps only: prefill is exact anyway. The steps cross a page end.
Outputs decoded(const RunSetup& setup, int chunk, const Geometry& geometry) {
  RuntimeRun run(setup, geometry);
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, chunk);
  return run.decode(id, 1, 60);
}

Outputs decoded(const RunSetup& setup, int chunk = kPrompt) {
  return decoded(setup, chunk, small_geometry(setup.row_dtype));
}

// Counts attends to codes alone.
class AttendPhases final : public WrappedDevice {
 public:
  explicit AttendPhases(std::unique_ptr<Device> inner)
      : WrappedDevice(*inner), owned_(std::move(inner)) {}
  int codes_first() const { return codes_first_; }

 protected:
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override {
    const auto* attend = std::get_if<AttendParams>(&call);
    const bool alone = attend != nullptr && attend->phase == AttendPhase::kReadyTiles;
    codes_first_ += alone && attend->tile_ready == nullptr ? 1 : 0;
    WrappedDevice::do_enqueue(call, stream, tag);
  }

 private:
  std::unique_ptr<Device> owned_;
  int codes_first_ = 0;
};

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at token " << i;
  }
}

TEST(LowBitExactness, TheLowBitSetChangesTheResult) {
  const Outputs without = decoded({});
  Outputs before = without;
  for (const int64_t low_bit : {int64_t{1}, int64_t{40}, int64_t{10000}, kAllOthers}) {
    const Outputs with = decoded({.low_bit_tokens = low_bit});
    EXPECT_FALSE(same_bits(with[0], before[0])) << low_bit;
    before = with;
  }
  EXPECT_FALSE(same_bits(decoded({.low_bit_tokens = 40, .value_codes = SliceDType::kInt8})[0],
                         decoded({.low_bit_tokens = 40})[0]));
}

TEST(LowBitExactness, DevicesPlacementHotRowsStreamsThreads) {
  const auto check = [](int64_t low_bit, SliceDType values) {
    const bool coded = values == SliceDType::kInt4;
    const RunSetup plain{.low_bit_tokens = low_bit,
                         .value_codes = values,
                         .row_dtype = coded ? RowDType::kInt8 : RowDType::kBF16};
    const Outputs base = decoded(plain);
    RunSetup other = plain;
    other.threads = 1;
    expect_same(base, decoded(other), "one thread on the cpu");
    for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice, RowPlacement::kAuto}) {
      // waves through the fetch buffer, few hot rows, hot rows for all
      for (const int hot_rows : {0, 20, 300}) {
        other = plain;
        other.device = "emulated", other.rows = rows, other.hot_rows = hot_rows;
        other.streams = hot_rows == 0 ? 4 : 1;
        expect_same(base, decoded(other), "emulated, hot rows " + std::to_string(hot_rows));
      }
    }
  };
  for (const SliceDType values : {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8}) {
    for (const int64_t low_bit : {int64_t{70}, kAllOthers}) check(low_bit, values);
  }
}

// Heads in which FCs lie differently.
std::vector<std::pair<std::string, Geometry>> chunk_layouts() {
  const Geometry whole = small_geometry();
  Geometry partial = whole, unrotated = whole, latent = whole;
  partial.windows = {0, 90, 200};
  partial.rotary_dims = 12;  // the other pairs lie side by side
  partial.rotary_layout = RotaryLayout::kInterleaved;
  unrotated.rotary_dims = 0;
  unrotated.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03f, 0.015f};
  latent.kv_heads = 1;  // of all query heads: a rotated part, then the latent, which is the value
  latent.key_dim = 26, latent.rotary_dims = 8, latent.value_dim = 18;
  return {{"RoPE", whole}, {"partial RoPE", partial}, {"ALiBi", unrotated}, {"MLA", latent}};
}

// FCs in four, two and no bits: the same whatever the device, placement, chunk and threads.
TEST(LowBitExactness, FineChunks) {
  for (const auto& [name, geometry] : chunk_layouts()) {
    SCOPED_TRACE(name);
    for (const int left_out : {0, 3}) {
      RunSetup plain{.low_bit_tokens = kAllOthers,
                     .tip_chunks = geometry.chunks() - left_out,
                     .fine_chunks = 3};
      const Outputs base = decoded(plain, kPrompt, geometry);
      RunSetup other = plain;
      other.fine_chunks = 0;
      if (left_out == 0) {
        EXPECT_FALSE(same_bits(base[0], decoded(other, kPrompt, geometry)[0]));
      }
      other = plain;
      other.threads = 1;
      expect_same(base, decoded(other, 64, geometry), "one thread on the cpu");
      for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice, RowPlacement::kAuto}) {
        other = plain;
        other.device = "emulated", other.rows = rows;
        other.hot_rows = left_out == 0 ? 0 : 70;
        expect_same(base, decoded(other, 100, geometry), "emulated");
      }
    }
  }
}

// Codes in a launch before the rows, as on a card whose memory is slow next to a launch.
TEST(LowBitExactness, CodesBeforeRows) {
  for (const int64_t low_bit : {int64_t{70}, kAllOthers}) {
    for (const int head_groups : {1, 2}) {
      RunSetup setup{.low_bit_tokens = low_bit};
      const Outputs base = decoded(setup);
      setup.device = "emulated", setup.hot_rows = 200, setup.head_groups = head_groups;
      DeviceOptions options;
      options.name = "emulated";
      options.memory_bandwidth = 1e8;
      auto device = std::make_unique<AttendPhases>(open_device(options));
      const AttendPhases& phases = *device;
      RuntimeRun run(std::move(device), setup);
      const SequenceId id = run.runtime().create();
      run.prefill(id, 1, kPrompt, kPrompt);
      expect_same(base, run.decode(id, 1, 60), "codes first");
      // With two groups of one head the first one's attention hides the second one's fetch.
      EXPECT_EQ(phases.codes_first() > 0, head_groups == 1) << low_bit;
    }
  }
}

TEST(LowBitExactness, PrefillChunks) {
  for (const char* device : {"cpu", "emulated"}) {
    for (const int64_t low_bit : {int64_t{70}, kAllOthers}) {
      const RunSetup setup{.device = device, .low_bit_tokens = low_bit};
      const Outputs base = decoded(setup);
      for (const int chunk : {1, 63, 64, 200}) {
        expect_same(base, decoded(setup, chunk), std::string(device) + std::to_string(chunk));
      }
    }
  }
}

TEST(LowBitExactness, ASetThatCoversTheContextIsFullAttention) {
  for (const char* device : {"cpu", "emulated"}) {
    for (const int64_t low_bit : {int64_t{50}, kAllOthers}) {
      expect_same(decoded({.device = device, .kind = SelectionKind::kFull}),
                  decoded({.device = device, .fac_tokens = 10000, .low_bit_tokens = low_bit}),
                  device);
    }
  }
}

TEST(LowBitExactness, WindowsAndDenseLayers) {
  Geometry geometry = small_geometry();
  for (const int first_window : {0, 200}) {  // with one, layers keep their slices
    geometry.windows = {first_window, 90, 37};
    for (const int64_t low_bit : {int64_t{30}, kAllOthers}) {
      RunSetup setup{.low_bit_tokens = low_bit, .dense_layers = {0}};
      const Outputs base = decoded(setup, kPrompt, geometry);
      setup.device = "emulated";
      for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
        setup.rows = rows;
        expect_same(base, decoded(setup, 64, geometry), "windows");
      }
    }
  }
}

TEST(LowBitExactness, PredictionsChangeNothing) {
  Geometry geometry = small_geometry();
  geometry.layers = 5;
  for (const int64_t low_bit : {int64_t{70}, kAllOthers}) {
    const Outputs base = decoded({.low_bit_tokens = low_bit, .depth = 0}, kPrompt, geometry);
    for (const PredictionSource prediction_source :
         {PredictionSource::kGoodQueries, PredictionSource::kPoorQueries,
          PredictionSource::kRandom}) {
      for (const int hot_rows : {30, 51, 300}) {
        expect_same(base,
                    decoded({.device = "emulated",
                             .hot_rows = hot_rows,
                             .low_bit_tokens = low_bit,
                             .depth = 2,
                             .prediction_source = prediction_source},
                            kPrompt, geometry),
                    "hot rows " + std::to_string(hot_rows));
      }
    }
  }
}

// Sequences of different lengths in one batch: some have no low-bit set yet, some a partial one.
TEST(LowBitExactness, SequencesTogether) {
  const auto length_of = [](int i) { return 20 + 37 * i; };
  const RunSetup setups[] = {{.device = "cpu", .low_bit_tokens = 100},
                             {.device = "emulated", .low_bit_tokens = 100},
                             {.device = "cpu", .low_bit_tokens = kAllOthers},
                             {.device = "emulated", .low_bit_tokens = kAllOthers}};
  for (const RunSetup& setup : setups) {
    std::vector<Outputs> alone;
    RuntimeRun run(setup);
    std::vector<SequenceId> ids;
    std::vector<Part> prompts;
    for (int i = 0; i < 9; ++i) {
      RuntimeRun one(setup);
      const SequenceId id = one.runtime().create();
      one.prefill(id, static_cast<uint64_t>(i), length_of(i), 128);
      alone.push_back(one.decode(id, static_cast<uint64_t>(i), 3));
      ids.push_back(run.runtime().create());
      prompts.push_back(
          {ids.back(), static_cast<uint64_t>(i), 0, length_of(i), StepMode::kPrefill});
    }
    run.tape().step(prompts);
    for (int step = 0; step < 3; ++step) {
      std::vector<Part> parts;
      for (size_t i = 0; i < ids.size(); ++i) {
        parts.push_back({ids[i], i, run.runtime().length(ids[i]), 1, StepMode::kDecode});
      }
      Outputs outputs;
      run.append_split(run.tape().step(parts), static_cast<int>(ids.size()), outputs);
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_TRUE(same_bits(outputs[i], alone[i][static_cast<size_t>(step)]))
            << setup.device << " sequence " << i << " step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace fasa::testing
