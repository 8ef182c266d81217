// Features common to all cache APIs: ranges of KV heads, log-sum-exp, reading rows back, and a
// decode step without a cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/api/stateless/sparse_decode.h"
#include "runtime/base/error.h"
#include "tests/support/device_tensors.h"
#include "tests/support/reference/row_codes.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPrompt = 150;

Config small_config(RowPlacement rows, int tip_chunks = 10) {
  Config config;
  config.selection.tip_chunks = tip_chunks;
  config.selection.fac_tokens = {{.tokens = 24, .share = 0}};
  config.selection.sinks = 3;
  config.selection.recent = 5;
  config.placement.rows = rows;
  config.placement.hot_rows = 40;
  return config;
}

std::unique_ptr<Device> open(const char* name) {
  DeviceOptions options;
  options.name = name;
  options.threads = 2;
  return open_device(options);
}

struct Output {
  std::vector<float> out, lse;
};

// A prefill and three decodes of KV heads `heads` of the tape's sequence 1, through a runtime for
// these heads; [step][layer][query heads of the range].
std::vector<Output> run(const char* device_name, const Geometry& whole, const Config& config,
                        const std::vector<int16_t>& dims, HeadRange heads) {
  const auto device = open(device_name);
  DeviceTensors tensors(*device);
  Runtime runtime(*device, config, whole.share(heads),
                  config.placement.row_dtype.value_or(RowDType()),
                  share_of_slice_dims(dims, whole, heads));
  const SequenceId id = runtime.create();
  const int group = whole.gqa_group();
  std::vector<Output> outputs;
  for (int step = 0; step < 4; ++step) {
    const int64_t start = runtime.length(id);
    const int64_t tokens = step == 0 ? kPrompt : 1;
    const StepSequence part{id, static_cast<int>(tokens),
                            step == 0 ? StepMode::kPrefill : StepMode::kDecode};
    runtime.begin_step({&part, 1});
    for (int layer = 0; layer < whole.layers; ++layer) {
      const auto tape = [&](TapeKind kind, int all, int dim, int first, int count) {
        return heads_of(tensors.tape(1, layer, start, tokens, kind, all, dim), first, count);
      };
      runtime.append(
          layer, tape(TapeKind::kKey, whole.kv_heads, whole.key_dim, heads.first, heads.count),
          tape(TapeKind::kValue, whole.kv_heads, whole.value_dim, heads.first, heads.count),
          tensors.stream());
      const TensorView out = tensors.zeros(tokens, heads.count * group, whole.value_dim);
      const TensorView lse = tensors.zeros(tokens, heads.count * group, 1);
      runtime.attend(layer,
                     tape(TapeKind::kQuery, whole.query_heads, whole.key_dim, heads.first * group,
                          heads.count * group),
                     out, static_cast<float*>(lse.data), tensors.stream());
      outputs.push_back({tensors.values(out), tensors.values(lse)});
    }
    runtime.end_step();
  }
  return outputs;
}

// Query heads [first, first + count) of [tokens, heads, width].
std::vector<float> cut(const std::vector<float>& all, int heads, int first, int count, int width) {
  std::vector<float> part;
  for (size_t token = 0; token < all.size(); token += static_cast<size_t>(heads * width)) {
    const auto begin = all.begin() + static_cast<int64_t>(token) + first * width;
    part.insert(part.end(), begin, begin + count * width);
  }
  return part;
}

// Tests that hold for every row format.
class ApisOfRows : public ::testing::TestWithParam<RowDType> {};

TEST_P(ApisOfRows, AShareOfTheHeadsGivesTheBitsOfTheWhole) {
  Geometry whole = small_geometry(GetParam());
  whole.kv_heads = 4;
  whole.query_heads = 12;
  for (const char* device : {"cpu", "emulated"}) {
    Config config = small_config(RowPlacement::kHost, 4);
    config.placement.row_dtype = GetParam();
    std::vector<int16_t> dims;  // different ones for every head
    for (int head = 0; head < whole.layers * whole.kv_heads; ++head) {
      for (int i = 0; i < 4; ++i) {
        const Geometry::Pair pair = whole.chunk_dims((i * 2 + head) % whole.chunks());
        dims.push_back(static_cast<int16_t>(pair.first));
        dims.push_back(static_cast<int16_t>(pair.second));
      }
    }
    const auto all = run(device, whole, config, dims, {0, 4});
    for (const HeadRange heads : {HeadRange{0, 1}, HeadRange{1, 3}, HeadRange{2, 2}}) {
      const auto part = run(device, whole, config, dims, heads);
      ASSERT_EQ(part.size(), all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        const int first = heads.first * 3;
        const int count = heads.count * 3;
        EXPECT_TRUE(same_bits(part[i].out, cut(all[i].out, 12, first, count, whole.value_dim)))
            << device << i;
        EXPECT_TRUE(same_bits(part[i].lse, cut(all[i].lse, 12, first, count, 1))) << device << i;
      }
    }
  }
}

TEST(Api, ImpossibleRangesAreNamed) {
  const Geometry whole = small_geometry();
  for (const HeadRange bad : {HeadRange{0, 3}, HeadRange{-1, 1}, HeadRange{1, 0}, HeadRange{2, 1},
                              HeadRange{INT32_MAX, INT32_MAX}}) {
    EXPECT_THROW(whole.share(bad), UsageError);
  }
  EXPECT_THROW(whole.only_layer(3), UsageError);
  EXPECT_THROW(share_of_slice_dims(std::vector<int16_t>(7), whole, {0, 1}), UsageError);
}

// Attention over all tokens in double precision.
double naive_lse(const Geometry& geometry, int layer, int64_t position, int query_head) {
  const int head = query_head / geometry.gqa_group();
  std::vector<double> scores;
  for (int64_t t = 0; t <= position; ++t) {
    double score = 0;
    for (int d = 0; d < geometry.key_dim; ++d) {
      const float key = tape_value(1, layer, t, TapeKind::kKey, head * geometry.key_dim + d);
      const float query =
          tape_value(1, layer, position, TapeKind::kQuery, query_head * geometry.key_dim + d);
      score += double{query} * f32_from_bf16(bf16_from_f32(key));
    }
    scores.push_back(score * geometry.scale);
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - most);
  return most + std::log(sum);
}

TEST(Api, LogSumExpIsOfTheScaledScores) {
  const Geometry geometry = small_geometry();
  Config config = small_config(RowPlacement::kHost);
  config.selection.fac_tokens = {{.tokens = 1000, .share = 0}};
  const auto outputs = run("emulated", geometry, config, all_slice_dims(geometry), {0, 2});
  const auto check = [&](const std::vector<float>& lse, int layer, int64_t token,
                         int64_t position) {
    for (int head = 0; head < geometry.query_heads; ++head) {
      const float got = lse[static_cast<size_t>(token * geometry.query_heads + head)];
      EXPECT_NEAR(got, naive_lse(geometry, layer, position, head), 1e-4) << layer << " " << head;
    }
  };
  for (int layer = 0; layer < geometry.layers; ++layer) {
    for (const int64_t token : {0, 70, 149}) {
      check(outputs[static_cast<size_t>(layer)].lse, layer, token, token);
    }
    check(outputs[static_cast<size_t>(3 * geometry.layers + layer)].lse, layer, 0, kPrompt + 2);
  }
}

// The decoded keys and values of rows, one after the other.
struct Stored {
  std::vector<float> keys, values;
};
Stored stored(const RowFormat& format, const std::vector<float>& keys,
              const std::vector<float>& values) {
  Stored all;
  std::vector<std::byte> row(static_cast<size_t>(format.bytes()));
  const auto count = static_cast<int64_t>(keys.size()) / format.key_dim;
  const auto k = ConstTensorView::dense(keys.data(), DType::kF32, count, 1, format.key_dim);
  const auto v = ConstTensorView::dense(values.data(), DType::kF32, count, 1, format.value_dim);
  for (int64_t i = 0; i < count; ++i) {
    reference::write_row(format, k, v, i, 0, row.data());
    const std::vector<float> key = reference::row_key(format, row.data());
    const std::vector<float> value = reference::row_value(format, row.data());
    all.keys.insert(all.keys.end(), key.begin(), key.end());
    all.values.insert(all.values.end(), value.begin(), value.end());
  }
  return all;
}

void expect_rows(DeviceTensors& tensors, Runtime& runtime, RowDType rows, SequenceId id,
                 int64_t first, int64_t tokens, uint64_t seed) {
  const Geometry& g = runtime.geometry();
  for (int layer = 0; layer < g.layers; ++layer) {
    const TensorView k = tensors.zeros(tokens, g.kv_heads, g.key_dim);
    const TensorView v = tensors.zeros(tokens, g.kv_heads, g.value_dim, DType::kBF16);
    runtime.read(id, layer, first, k, v, tensors.stream());
    const auto given = [&](TapeKind kind, int dim) {
      return tensors.values(tensors.tape(seed, layer, first, tokens, kind, g.kv_heads, dim));
    };
    Stored expected = stored({rows, g.key_dim, g.value_dim}, given(TapeKind::kKey, g.key_dim),
                             given(TapeKind::kValue, g.value_dim));
    for (float& value : expected.values) value = f32_from_bf16(bf16_from_f32(value));
    EXPECT_EQ(tensors.values(k), expected.keys);
    EXPECT_EQ(tensors.values(v), expected.values);
  }
}

TEST_P(ApisOfRows, StoredKeysAndValuesCanBeReadBack) {
  for (const char* device : {"cpu", "emulated"}) {
    for (const RowPlacement rows :
         {RowPlacement::kHost, RowPlacement::kDevice, RowPlacement::kAuto}) {
      RuntimeRun run(RunSetup{.device = device, .rows = rows, .row_dtype = GetParam()});
      DeviceTensors tensors(run.device());
      const SequenceId id = run.runtime().create();
      run.prefill(id, 3, 130, 50);
      run.decode(id, 3, 7);
      expect_rows(tensors, run.runtime(), GetParam(), id, 0, 137, 3);
      expect_rows(tensors, run.runtime(), GetParam(), id, 61, 70, 3);
      expect_rows(tensors, run.runtime(), GetParam(), id, 137, 0, 3);
      const SequenceId child = run.runtime().fork(id, 100);
      expect_rows(tensors, run.runtime(), GetParam(), child, 60, 40, 3);
      const StepSequence part{id, 1, StepMode::kDecode};
      run.runtime().begin_step({&part, 1});  // committed tokens can be read while a step is open
      expect_rows(tensors, run.runtime(), GetParam(), id, 130, 7, 3);
      run.runtime().abort_step();
    }
  }
}

TEST(Api, ReadingBackWhatIsNotThereIsRefused) {
  RuntimeRun run(RunSetup{});
  DeviceTensors tensors(run.device());
  const SequenceId id = run.runtime().create();
  run.prefill(id, 3, 10, 10);
  const auto read = [&](int layer, int64_t first, int64_t tokens, int heads) {
    run.runtime().read(id, layer, first, tensors.zeros(tokens, heads, 20),
                       tensors.zeros(tokens, heads, 12), tensors.stream());
  };
  EXPECT_NO_THROW(read(0, 4, 6, 2));
  EXPECT_THROW(read(3, 0, 1, 2), UsageError);
  EXPECT_THROW(read(0, 4, 7, 2), UsageError);
  EXPECT_THROW(read(0, -1, 2, 2), UsageError);
  EXPECT_THROW(read(0, 0, 1, 3), UsageError);
}

// A tensor [batch, heads, tokens, dim] with any strides, made from a dense [tokens, heads, dim] per
// batch entry.
struct Batch {
  std::vector<std::byte> host;
  BatchTensorView view;
};

Batch batch_of(const std::vector<uint64_t>& seeds, int layer, int64_t tokens, TapeKind kind,
               int heads, int dim, bool tokens_first) {
  const auto batch = static_cast<int64_t>(seeds.size());
  const int64_t padded = dim + 3;  // only the last dimension has to be dense
  const int64_t head_stride = tokens_first ? padded : tokens * padded;
  const int64_t token_stride = tokens_first ? heads * padded : padded;
  const int64_t batch_stride = heads * tokens * padded + 5;
  Batch made;
  made.host.resize(static_cast<size_t>(batch * batch_stride * 4));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int i = 0; i < heads * dim; ++i) {
        const int64_t at = b * batch_stride + i / dim * head_stride + t * token_stride + i % dim;
        store_element(DType::kF32, made.host.data(), at,
                      tape_value(seeds[static_cast<size_t>(b)], layer, t, kind, i));
      }
    }
  }
  made.view = {nullptr, DType::kF32,  batch,       heads,       tokens,
               dim,     batch_stride, head_stride, token_stride};
  return made;
}

TEST_P(ApisOfRows, ADecodeWithoutACacheGivesTheBitsOfASequence) {
  const Geometry g = small_geometry(GetParam());
  const int width = g.query_heads * g.value_dim;
  const std::vector<uint64_t> seeds = {11, 12, 13};
  const std::vector<int64_t> lengths = {kPrompt, 1, 129};
  for (const char* name : {"cpu", "emulated"}) {
    for (const bool tokens_first : {false, true}) {
      const auto device = open(name);
      DeviceTensors tensors(*device);
      Config config = small_config(RowPlacement::kHost, g.chunks());
      const int64_t low_bit = tokens_first ? 60 : 0;
      config.selection.low_bit_tokens = {.tokens = low_bit, .share = 0};
      const int layer = 1;
      Batch k =
          batch_of(seeds, layer, kPrompt, TapeKind::kKey, g.kv_heads, g.key_dim, tokens_first);
      Batch v =
          batch_of(seeds, layer, kPrompt, TapeKind::kValue, g.kv_heads, g.value_dim, tokens_first);
      k.view.data = tensors.upload(k.host);
      v.view.data = tensors.upload(v.host);
      const int query = g.query_heads * g.key_dim;
      std::vector<std::byte> query_bytes(3 * static_cast<size_t>(query) * 4);
      for (size_t b = 0; b < seeds.size(); ++b) {
        for (int i = 0; i < query; ++i) {
          store_element(DType::kF32, query_bytes.data(), static_cast<int64_t>(b) * query + i,
                        tape_value(seeds[b], layer, lengths[b] - 1, TapeKind::kQuery, i));
        }
      }
      const TensorView out = tensors.zeros(3, g.query_heads, g.value_dim);
      const TensorView lse = tensors.zeros(3, g.query_heads, 1);
      SparseDecode call;
      call.layer = layer;
      call.q = ConstTensorView::dense(tensors.upload(query_bytes), DType::kF32, 3, g.query_heads,
                                      g.key_dim);
      call.k = k.view;
      call.v = v.view;
      call.lengths = lengths;
      call.out = out;
      call.lse = static_cast<float*>(lse.data);
      const RunSetup setup{.device = name,
                           .fac_tokens = 24,
                           .low_bit_tokens = low_bit,
                           .tip_chunks = g.chunks(),
                           .row_dtype = GetParam()};
      sparse_decode(*device, config, g, GetParam(), RuntimeRun::dims(setup, g), call,
                    tensors.stream());
      const auto got = tensors.values(out);
      const auto got_lse = tensors.values(lse);
      for (size_t b = 0; b < seeds.size(); ++b) {
        RuntimeRun sequence(setup);
        const SequenceId id = sequence.runtime().create();
        if (lengths[b] > 1) sequence.prefill(id, seeds[b], lengths[b] - 1, 64);
        std::vector<float> sums;
        sequence.tape().lse = &sums;
        const auto all = sequence.decode(id, seeds[b], 1)[0];
        const std::vector<float> expected(all.begin() + layer * width,
                                          all.begin() + (layer + 1) * width);
        const auto first = got.begin() + static_cast<int64_t>(b) * width;
        EXPECT_TRUE(same_bits(std::vector<float>(first, first + width), expected)) << name << b;
        const auto own = got_lse.begin() + static_cast<int64_t>(b) * 6;
        const auto other = sums.begin() + layer * 6;
        EXPECT_TRUE(same_bits({own, own + 6}, {other, other + 6})) << name << b;
      }
      EXPECT_EQ(device->memory(MemorySpace::kHost).used_bytes, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ApisOfRows,
                         ::testing::Values(RowDType::kBF16, RowDType::kInt8, RowDType::kF16),
                         [](const auto& of) { return std::string(row_dtype_name(of.param)); });

TEST(Api, ADecodeWithoutACacheChecksItsTensors) {
  const Geometry g = small_geometry();
  const auto device = open("cpu");
  std::vector<float> data(4000);
  SparseDecode good;
  good.q = ConstTensorView::dense(data.data(), DType::kF32, 1, 6, 20);
  good.k = BatchTensorView::dense(data.data(), DType::kF32, 1, 2, 30, 20);
  good.v = BatchTensorView::dense(data.data(), DType::kF32, 1, 2, 30, 12);
  good.out = TensorView::dense(data.data(), DType::kF32, 1, 6, 12);
  const auto message = [&](auto change) -> std::string {
    SparseDecode call = good;
    change(call);
    try {
      sparse_decode(*device, small_config(RowPlacement::kHost), g, DType::kF32, all_slice_dims(g),
                    call, {});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const int64_t too_long[] = {31};
  const int64_t two[] = {3, 3};
  EXPECT_EQ(message([](SparseDecode&) {}), "");
  EXPECT_THAT(message([](SparseDecode& c) { c.layer = 3; }), HasSubstr("layer 3"));
  EXPECT_THAT(message([](SparseDecode& c) { c.k.heads = 3; }),
              HasSubstr("k is [1, 3, 30, 20]; expected [1, 2, 30, 20]"));
  EXPECT_THAT(message([](SparseDecode& c) { c.v.data = nullptr; }), HasSubstr("and null"));
  EXPECT_THAT(message([](SparseDecode& c) { c.q.heads = 2; }), HasSubstr("q is [1, 2, 20]"));
  EXPECT_THAT(message([&](SparseDecode& c) { c.lengths = too_long; }), HasSubstr("length = 31"));
  EXPECT_THAT(message([&](SparseDecode& c) { c.lengths = two; }), HasSubstr("2 lengths"));
  EXPECT_THAT(message([](SparseDecode& c) { c.q.tokens = 0; }), HasSubstr("at least one"));
}

}  // namespace
}  // namespace fasa::testing
