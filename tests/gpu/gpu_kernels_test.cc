// The CUDA device's kernels on a GPU, with the test cases of the CPU kernels; pinned_main.cc makes
// the cases' memory visible to the GPU. compute-sanitizer runs the tests named "Small" too.
#include <gtest/gtest.h>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/select/select_scratch.h"
#include "tests/gpu/scores.h"
#include "tests/kernels/append_case.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/claim_slots_case.h"
#include "tests/kernels/delta_case.h"
#include "tests/kernels/expert_case.h"
#include "tests/kernels/low_bit_pages_case.h"
#include "tests/kernels/prefill_case.h"
#include "tests/kernels/read_rows_case.h"
#include "tests/kernels/resolve_case.h"
#include "tests/kernels/runners_up_case.h"
#include "tests/kernels/select_inputs.h"
#include "tests/kernels/sinks_case.h"
#include "tests/simt/page_scores.h"
#include "tests/support/gpu.h"

namespace fasa {
namespace {

// Wraps a kernel launcher so that it returns when the kernel has finished.
template <typename Params>
void run(const Params& params) {
  const CudaPlatform platform = cuda_platform();
  platform.launch(params, nullptr);
  const CudaStatus status = platform.calls->synchronize_stream(nullptr);
  ASSERT_EQ(status, cuda_status::kSuccess) << platform.calls->name_of(status);
}

RowKernels gpu_row_kernels() {
  return {run<ResolveParams>, run<ClaimSlotsParams>, run<GatherParams>, run<FetchParams>};
}

std::vector<float> falling_slopes(int heads) {
  std::vector<float> slopes;
  for (int head = 0; head < heads; ++head) slopes.push_back(1.0f / static_cast<float>(1 + head));
  return slopes;
}

class GpuKernels : public ::testing::Test {
 protected:
  void SetUp() override { FASA_NEEDS_GPU(); }

  static attend_case::Cut attend_cut() {
    attend_case::Cut cut;
    cut.run = run<AttendParams>;
    return cut;
  }
  static void expect_prefill(const RowShape& shape, int tokens, int window) {
    prefill_case::Ways fast, slow;
    fast.run = run<PrefillParams>;
    fast.window = slow.window = window;
    const std::vector<float> result = prefill_case::prefill(shape, tokens, fast);
    prefill_case::expect_near(result, prefill_case::prefill(shape, tokens, slow));
    fast.chunk = 50;
    EXPECT_TRUE(prefill_case::same_bits(prefill_case::prefill(shape, tokens, fast), result));
  }
};

// fasa's own kernels, for few rows and for many; cuBLASLt is tested with whole models.
TEST_F(GpuKernels, SmallProjections) {
  constexpr int64_t kColumns = 150;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t rows : {1, 3, 16, 40, 131}) {
      for (const int64_t inputs : {33, 264}) {
        std::vector<float> x, weights;
        std::vector<std::byte> x_bytes(static_cast<size_t>(rows * inputs * 4));
        std::vector<std::byte> w_bytes(static_cast<size_t>(kColumns * inputs * 4));
        const auto fill = [&](std::vector<float>& values, std::vector<std::byte>& bytes,
                              InputKind kind, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            store_element(dtype, bytes.data(), i, noise(kind, 1, 2, 3, 4, static_cast<int>(i)));
            values.push_back(load_element(dtype, bytes.data(), i));
          }
        };
        fill(x, x_bytes, InputKind::kQuery, rows * inputs);
        fill(weights, w_bytes, InputKind::kKey, kColumns * inputs);
        std::vector<float> y(static_cast<size_t>(rows * kColumns));
        cuda::enqueue(ProjectParams{.dtype = dtype,
                                    .rows = rows,
                                    .inputs = inputs,
                                    .columns = kColumns,
                                    .y_stride = kColumns,
                                    .x = x_bytes.data(),
                                    .weights = w_bytes.data(),
                                    .y = y.data()},
                      StreamView{DeviceKind::kCuda, nullptr});
        const CudaPlatform platform = cuda_platform();
        ASSERT_EQ(platform.calls->synchronize_stream(nullptr), cuda_status::kSuccess);
        for (int64_t i = 0; i < rows * kColumns; ++i) {
          double sum = 0;
          for (int64_t k = 0; k < inputs; ++k) {
            sum += static_cast<double>(x[static_cast<size_t>(i / kColumns * inputs + k)]) *
                   static_cast<double>(weights[static_cast<size_t>(i % kColumns * inputs + k)]);
          }
          ASSERT_NEAR(y[static_cast<size_t>(i)], sum, 1e-6 * static_cast<double>(inputs))
              << rows << "x" << inputs << " at " << i;
        }
      }
    }
  }
}

TEST_F(GpuKernels, SmallReadRows) {
  read_rows_case::expect_same_as_the_processors(run<ReadRowsParams>);
}

TEST_F(GpuKernels, SmallSinks) { sinks_case::expect_their_share(run<TakeSinksParams>); }

// The choice of experts is tested with whole models.
TEST_F(GpuKernels, SmallExperts) {
  const auto all = [](const auto& params) { run(params); };
  expert_case::expect_arranged(all);
  for (const expert_case::ProductCase& c : expert_case::kProductCases) {
    expert_case::expect_products(all, c);
  }
  expert_case::expect_packed_products(all);
  expert_case::expect_mixed(all);
}

TEST_F(GpuKernels, SmallDeltaNet) {
  const auto all = [](const LinearCall& call) {
    std::visit([](const auto& params) { run(params); }, call);
  };
  for (const LinearShape& shape : delta_case::kShapes) delta_case::expect_the_oracle(all, shape);
  delta_case::expect_same_bits_in_chunks(all, delta_case::kShapes[0]);
  delta_case::expect_same_bits_in_chunks(all, delta_case::in_bf16(delta_case::kShapes[3]));
  delta_case::expect_one_token(all);
  delta_case::expect_zeros_of_zeros(all);
  delta_case::expect_decoded_one_by_one(all);
  delta_case::expect_saved_at_a_cut(all);
  delta_case::expect_independent_sequences(all);
  delta_case::expect_gated(all);
}

TEST_F(GpuKernels, SmallAttend) {
  for (const int group : {1, 4, 17}) {
    RowShape shape;
    shape.group = group, shape.key_dim = 34, shape.value_dim = 70;
    attend_case::expect_all_cuts_equal(attend_case::Decode(shape, {75, 33}), attend_cut(), {0, 32});
    shape.slopes = falling_slopes(2 * group);
    attend_case::expect_all_cuts_equal(attend_case::Decode(shape, {75, 33}), attend_cut(), {0, 32});
  }
}

TEST_F(GpuKernels, SmallAttendWithSoftCap) {
  for (const RowDType row : {RowDType::kBF16, RowDType::kInt8}) {
    RowShape shape;
    shape.row = row, shape.group = 4, shape.key_dim = shape.value_dim = 64, shape.score_cap = 2;
    attend_case::expect_all_cuts_equal(attend_case::Decode(shape, {75, 33}), attend_cut(), {0, 32});
  }
}

// Every fourth token is attended to by rows, the tokens between by codes; unsealed pages are
// included.
TEST_F(GpuKernels, SmallLowBitAttend) {
  for (const SliceDType values : {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8}) {
    for (const RowDType row : {RowDType::kBF16, RowDType::kInt8}) {
      RowShape shape;
      shape.row = row, shape.group = 4, shape.key_dim = shape.value_dim = 128;
      shape.values = values;
      attend_case::Cut cut = attend_cut();
      cut.set.emplace();
      for (int position = 0; position < 150; ++position) {
        (position % 4 == 0 ? *cut.set : cut.low_bit).push_back(position);
      }
      attend_case::expect_all_cuts_equal(attend_case::Decode(shape, {150, 190}), cut, {0, 32});
    }
  }
}

// All tokens outside the set, by whole pages; more than one block of them.
TEST_F(GpuKernels, SmallLowBitPages) {
  for (const SliceDType values : {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8}) {
    RowShape shape;
    shape.group = 4, shape.key_dim = shape.value_dim = 128;
    shape.values = values;
    attend_case::Cut cut = attend_cut();
    cut.low_bit_pages = true;
    cut.tolerance = attend_case::kF16WeightTolerance;
    cut.set.emplace();
    for (int position = 0; position < 150; position += 4) cut.set->push_back(position);
    attend_case::expect_all_cuts_equal(attend_case::Decode(shape, {1100, 190}), cut, {0, 32});
  }
}

TEST_F(GpuKernels, Attend) {
  for (const DType row : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int window : {0, 100}) {
      RowShape shape;
      shape.row = row, shape.group = 4, shape.key_dim = shape.value_dim = 128;
      attend_case::Cut cut = attend_cut();
      cut.window = window;
      attend_case::expect_all_cuts_equal(attend_case::Decode(shape, {1000, 333}), cut);
    }
  }
}

TEST_F(GpuKernels, SmallPrefill) {
  for (const int group : {1, 3, 33}) {
    RowShape shape;
    shape.kv_heads = 1, shape.group = group, shape.key_dim = 34, shape.value_dim = 70;
    expect_prefill(shape, 70, 0);
    shape.slopes = falling_slopes(group);
    expect_prefill(shape, 70, 50);
  }
}

// A row format that the tensor core kernels accept.
RowShape tile_shape(int group, int dim, RowDType row, DType input) {
  RowShape shape;
  shape.kv_heads = 1, shape.group = group, shape.key_dim = shape.value_dim = dim;
  shape.row = row, shape.input = input;
  return shape;
}

TEST_F(GpuKernels, SmallTilePrefill) {
  for (const RowDType row : {RowDType::kF16, RowDType::kBF16, RowDType::kInt8}) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      expect_prefill(tile_shape(4, 128, row, input), 70, 0);
      for (const int dim : {64, 80, 96, 256}) {
        expect_prefill(tile_shape(3, dim, row, input), 70, 50);
      }
    }
    RowShape capped = tile_shape(3, 64, row, DType::kBF16);
    capped.score_cap = 2;
    expect_prefill(capped, 70, 50);
  }
}

// A NaN among the values reaches the later queries and changes no bit of the earlier ones.
TEST_F(GpuKernels, SmallTilePrefillOfNaN) {
  for (const int dim : {64, 80, 128, 256}) {
    const RowShape shape = tile_shape(2, dim, DType::kBF16, DType::kBF16);
    const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int d) {
      if (kind == InputKind::kValue && position == 20 && d == 3) return NAN;
      return noise(kind, sequence, layer, position, head, d);
    };
    prefill_case::Ways ways;
    ways.run = run<PrefillParams>;
    const std::vector<float> result = prefill_case::prefill(shape, 70, ways, input);
    const std::vector<float> clean = prefill_case::prefill(shape, 70, ways);
    const size_t of_head = static_cast<size_t>(dim) + 1;  // with the log-sum-exp
    for (size_t i = 0; i < result.size(); ++i) {
      const size_t token = i / (2 * of_head), d = i % of_head;
      if (token >= 20 && d == 3) {
        ASSERT_TRUE(std::isnan(result[i])) << token;
      } else {
        ASSERT_EQ(result[i], clean[i]) << token << " " << d;
      }
    }
  }
}

// Shapes of latent attention, and tensor core shapes with ALiBi.
TEST_F(GpuKernels, PrefillOfWideRowsAndOfSlopes) {
  RowShape wide;
  wide.kv_heads = 1, wide.group = 16, wide.key_dim = 576, wide.value_dim = 512;
  expect_prefill(wide, 70, 0);
  RowShape sloping;
  sloping.kv_heads = 1, sloping.group = 3, sloping.key_dim = sloping.value_dim = 128;
  sloping.slopes = falling_slopes(3);
  expect_prefill(sloping, 150, 0);
}

TEST_F(GpuKernels, Prefill) {
  for (const DType row : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int window : {0, 90}) {
      RowShape shape;
      shape.row = row, shape.group = 4, shape.key_dim = shape.value_dim = 128;
      expect_prefill(shape, 300, window);
    }
  }
}

TEST_F(GpuKernels, SmallAppendAndWriteBack) {
  for (const RowShape& shape : append_shapes()) {
    RowCase fast(shape, {5, 6}, 400), slow(shape, {5, 6}, 400);
    for (const std::vector<Advance>& advances :
         {std::vector<Advance>{{0, 100}, {1, 1}},
          {{1, 63}, {0, 28}},
          {{0, 1, StepMode::kDecode}, {1, 1, StepMode::kDecode}},
          {{1, 200}, {0, 1, StepMode::kDecode}}}) {
      RowStep step = fast.begin(advances);
      for (int layer = 0; layer < shape.layers; ++layer) {
        fast.fill(step, layer);
        run(fast.append_params(step, layer));
        if (!shape.on_device) {
          run(WriteBackParams{fast.params(step, layer)});
        }
      }
      fast.commit(advances);
      slow.advance(advances, true);
      for (int s = 0; s < 2; ++s) expect_same(fast, fast.sequence(s), slow.sequence(s), true);
    }
  }
}

TEST_F(GpuKernels, SmallRestore) {
  RowShape shape;
  shape.layers = 2, shape.key_dim = 34, shape.value_dim = 10;
  shape.on_device = false;
  RowCase fast(shape, {1, 2}, 200), slow(shape, {1, 2}, 200);
  for (RowCase* cache : {&fast, &slow}) cache->advance({{0, 200}, {1, 90}});
  for (const int length : {130, 64, 3, 0}) {
    for (RowCase* cache : {&fast, &slow}) {
      for (int s = 0; s < 2; ++s) {
        RowSequence& sequence = cache->sequence(s);
        sequence.length = std::min(length, sequence.length);
      }
    }
    const RowStep step = fast.begin({{0, 0}, {1, 0}}), other = slow.begin({{0, 0}, {1, 0}});
    run(RestoreParams{fast.params(step, 0)});
    reference::restore({slow.params(other, 0)});
    for (int s = 0; s < 2; ++s) {
      EXPECT_EQ(fast.sequence(s).tail, slow.sequence(s).tail) << length;
      EXPECT_EQ(fast.sequence(s).protected_rows, slow.sequence(s).protected_rows) << length;
    }
  }
}

TEST_F(GpuKernels, SmallResolveSpeculateGather) {
  for (const ResolveSetting& setting : resolve_settings()) {
    SCOPED_TRACE(name_of(setting));
    expect_resolves_as_reference(setting, gpu_row_kernels());
  }
  for (const ClaimSlotsSetting& setting : claim_slots_settings()) {
    SCOPED_TRACE(name_of(setting));
    expect_claims_slots_as_reference(setting, gpu_row_kernels());
  }
}

// Scratch for a select, 64-byte aligned.
class SelectMemory {
 public:
  explicit SelectMemory(const SelectParams& params)
      : bytes_(static_cast<size_t>(cuda::SelectScratch::of(params).bytes()) + 64) {}
  std::byte* data() {
    return bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64;
  }

 private:
  std::vector<std::byte> bytes_;
};

void run_select(const SelectParams& given) {
  SelectParams params = given;
  SelectMemory memory(params);
  params.scratch = memory.data();
  run(params);
}

reference::GroupScores own_scores(const SelectParams& params, int sequence, int kv_head) {
  const SelectPlan plan = plan_selection(params, params.step.sequences[sequence]);
  reference::GroupScores own;
  own.heads = params.step.layout.gqa_group;
  own.raw.resize(static_cast<size_t>(own.heads * plan.visible()));
  enqueue_scores(params, sequence, kv_head, own.raw.data());
  EXPECT_EQ(cuda_platform().calls->synchronize_stream(nullptr), cuda_status::kSuccess);
  return own;
}

// Tensor cores truncate where the interpreter rounds: the bound is doubled.
constexpr double kTruncation = 2;

// The scores are near the reference's, and the sets equal a full sort of these scores.
void expect_scored_and_sorted(const SelectShape& shape, const std::vector<int>& lengths) {
  SelectCase cache(shape, lengths, gaussian_keys(1), gaussian_queries(1));
  const SelectParams params = cache.params();
  run_select(params);
  for (int s = 0; s < params.step.count; ++s) {
    const SelectPlan plan = plan_selection(params, params.step.sequences[s]);
    for (int h = 0; h < shape.kv_heads; ++h) {
      const reference::GroupScores own =
          plan.is_dense() ? reference::GroupScores{} : own_scores(params, s, h);
      if (!plan.is_dense()) expect_scores(params, s, h, own.raw, kTruncation);
      EXPECT_EQ(cache.set_of(s, h), sorted_set(plan, own)) << "sequence " << s << " head " << h;
    }
  }
}

// Integers whose products and sums are exact, in f16 too: the reference's set is the only correct
// one.
void expect_selects_as_reference(const SelectShape& shape, int tokens, unsigned seed) {
  std::mt19937 random(seed);
  const auto small = [&](unsigned range, int middle) {
    return static_cast<float>(static_cast<int>(random() % range) - middle);
  };
  SelectCase cache(
      shape, {tokens}, [&](int, int, int, int) { return small(5, 2); },
      [&](int, int, int) { return small(15, 7); });
  if (is_coded(shape.dtype)) fill_with_codes(cache, tokens, 2, random);
  reference::select(cache.params());
  const std::vector<int32_t> expected = cache.set_of(0, 0);
  cache.forget_sets();
  run_select(cache.params());
  EXPECT_EQ(cache.set_of(0, 0), expected) << tokens << " tokens";
}

// The default scorer: 2-bit codes of whole keys.
TEST_F(GpuKernels, DefaultScorer) {
  expect_scored_and_sorted({SliceDType::kInt2, 128, 2, 4, 4, 60, 0, 256}, {20000, 300});
  expect_selects_as_reference({SliceDType::kInt2, 128, 1, 4, 4, 60, 0, 256}, 20000, 5);
}

TEST_F(GpuKernels, SmallCodedSelect) {
  for (const SliceDType dtype : {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8}) {
    for (const int dims : {64, 128}) {
      for (const int group : {1, 4, 8, 9}) {
        SCOPED_TRACE(::testing::Message()
                     << slice_dtype_name(dtype) << " dims " << dims << " group " << group);
        expect_scored_and_sorted({dtype, dims, 1, group, 4, 16, 0, 100}, {2300, 70});
        expect_selects_as_reference({dtype, dims, 1, group, 4, 16, 0, 100}, 3000, 11);
      }
    }
  }
}

TEST_F(GpuKernels, SmallSelect) {
  for (const SliceDType dtype : {SliceDType::kF32, SliceDType::kBF16}) {
    for (const int group : {1, 4, 5}) {
      for (const int tokens : {70, 300, 3000}) {
        expect_selects_as_reference({dtype, 32, 1, group, 4, 16, 0, 100}, tokens, 11);
      }
      expect_scored_and_sorted({dtype, 32, 1, group, 4, 16, 0, 100}, {2300, 70});
    }
  }
}

// A set and a low-bit set of the default sizes, 320 rows and 1024 low-bit tokens.
TEST_F(GpuKernels, SmallLowBitSelect) {
  for (const low_bit_case::LowBitShape& shape : low_bit_case::select_shapes()) {
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " low-bit "
                                      << shape.low_bit.tokens << " of " << shape.lengths[0]);
    low_bit_case::expect_next_best(shape, gaussian_keys(3), run_select);
  }
}

TEST_F(GpuKernels, SmallLowBitPagesSelect) {
  for (const low_bit_case::LowBitShape& shape : low_bit_case::select_shapes()) {
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " of "
                                      << shape.lengths[0] << ", group " << shape.select.group);
    low_bit_case::expect_all_others(shape, gaussian_keys(3), run_select);
  }
}

// Fewer and more than the low-bit set, or without one; ties and unordered keys.
TEST_F(GpuKernels, SmallRunnersUpSelect) {
  for (low_bit_case::LowBitShape shape : low_bit_case::select_shapes()) {
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " low-bit "
                                      << shape.low_bit.tokens << " of " << shape.lengths[0]);
    const bool ties = shape.select.score_cap > 0;  // more than can be sorted
    runners_up_case::expect_ranked(shape, 30, gaussian_keys(3), run_select, ties);
    shape.low_bit = {};
    runners_up_case::expect_ranked(shape, 300, gaussian_keys(3), run_select, ties);
  }
  for (const SelectCase::KeyOf& key : misleading_keys()) {
    low_bit_case::LowBitShape shape;
    shape.select.dims = 4, shape.select.group = 2;
    shape.lengths = {5000, 1300};
    shape.low_bit.tokens = 40;
    runners_up_case::expect_ranked(shape, 25, key, run_select, true);
  }
}

TEST_F(GpuKernels, LowBitSelectByDefault) {
  low_bit_case::LowBitShape shape;
  shape.select = {SliceDType::kInt2, 128, 2, 4, 4, 60, 0, 320};
  shape.select.value_dim = 128;
  shape.lengths = {40000};
  shape.low_bit.tokens = 1024;
  low_bit_case::expect_next_best(shape, gaussian_keys(3), run_select);
}

TEST_F(GpuKernels, SelectOfWideHeads) {
  expect_selects_as_reference({SliceDType::kBF16, 576, 1, 16, 4, 16, 0, 100}, 3000, 11);
  expect_scored_and_sorted({SliceDType::kInt2, 576, 1, 16, 4, 16, 0, 100}, {3000});
}

TEST_F(GpuKernels, SelectOfLongContexts) {
  for (const SliceDType dtype : {SliceDType::kInt2, SliceDType::kBF16}) {
    for (const int budget : {256, 2048}) {
      expect_selects_as_reference({dtype, 32, 1, 4, 4, 16, 0, budget}, 200000, 5);
    }
  }
}

}  // namespace
}  // namespace fasa
