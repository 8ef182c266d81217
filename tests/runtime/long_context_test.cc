// Contexts of 128k and 1M tokens through the whole pipeline: one layer of eight KV heads, whose
// rows take more than 2^32 bytes. The rows' memory is aliased with a fixed period, and so are keys
// and values: a row fetched from a wrong address is another token's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "offload/open_device.h"
#include "runtime/fasa.hpp"

namespace fasa {
namespace {

constexpr int kHeads = 8;
constexpr int kDim = 128;
constexpr int64_t kRowBytes = 2 * kDim * 2;
constexpr int kSinks = 4;
constexpr int kRecent = 16;
constexpr uint64_t kAlias = uint64_t{62} << 20;
// Tokens whose rows fill the aliased memory. No power of two is a multiple of it, so an offset that
// lost its upper bits leads to a different row.
constexpr int kPeriod = static_cast<int>(kAlias / (kHeads * kRowBytes));
static_assert(kPeriod % kPageTokens == 0 && (1 << 19) % kPeriod != 0 && (1 << 20) % kPeriod != 0);

// Each head looks for the tokens at these distances from the beginning of each period.
std::vector<int> sought(int head) {
  return {700 + 7 * head, 5003 + head, kPeriod - 100 - 3 * head};
}

bool is_sought(int head, int residue) {
  const std::vector<int> all = sought(head);
  return std::find(all.begin(), all.end(), residue) != all.end();
}

// Small multiples of powers of two, exact in bf16.
float key(int head, int residue, int dim) {
  const int noise = (residue * 37 + dim * 11 + head * 5) % 17 - 8;
  const float direction = (dim * 7 + head) % 3 == 0 ? -1.0f : 1.0f;
  return static_cast<float>(noise) / 32 + (is_sought(head, residue) ? direction : 0);
}
float value(int head, int residue, int dim) {
  return static_cast<float>((residue * 13 + dim * 29 + head) % 255 - 127) / 64;
}
float query(int head, int dim) { return (dim * 7 + head) % 3 == 0 ? -0.5f : 0.5f; }

class LongContext {
 public:
  explicit LongContext(int64_t tokens)
      : tokens_(tokens),
        device_(open()),
        runtime_(*device_, config(tokens), geometry(), DType::kBF16, all_slice_dims(geometry())),
        stream_(device_->create_stream(StreamPriority::kNormal, "compute")),
        keys_(upload(key)),
        values_(upload(value)) {
    runtime_.reserve(sequence_ = runtime_.create(), tokens + 8, kPeriod);
    for (int64_t done = 0; done < tokens; done += kPeriod) {
      step(static_cast<int>(std::min<int64_t>(kPeriod, tokens - done)), StepMode::kPrefill, {});
    }
  }

  // The output of the newest token, [head][dim].
  std::vector<float> decode() {
    std::vector<uint16_t> q(kHeads * kDim);
    for (int h = 0; h < kHeads; ++h) {
      for (int d = 0; d < kDim; ++d)
        q[static_cast<size_t>(h * kDim + d)] = bf16_from_f32(query(h, d));
    }
    return step(1, StepMode::kDecode, q);
  }

  // By definition, in f64, over the sought tokens, the sinks and the recent tokens.
  std::vector<float> expected() const {
    const int64_t length = runtime_.length(sequence_);
    std::vector<float> out(kHeads * kDim);
    for (int head = 0; head < kHeads; ++head) {
      std::vector<double> sums(kDim);
      double all = 0;
      for (const int64_t position : set_of(head, length)) {
        const int residue = static_cast<int>(position % kPeriod);
        double score = 0;
        for (int d = 0; d < kDim; ++d) score += double{query(head, d)} * key(head, residue, d);
        const double weight = std::exp(score * kScale);
        all += weight;
        for (int d = 0; d < kDim; ++d) {
          sums[static_cast<size_t>(d)] += weight * value(head, residue, d);
        }
      }
      for (int d = 0; d < kDim; ++d) {
        out[static_cast<size_t>(head * kDim + d)] =
            static_cast<float>(sums[static_cast<size_t>(d)] / all);
      }
    }
    return out;
  }
  FetchMetrics metrics() { return runtime_.metrics(); }

  // A stored token's key and value are those of its position in the period.
  void expect_rows(int64_t first) {
    constexpr int kCount = 3;
    std::vector<float> k(kCount * kHeads * kDim), v(k.size());
    runtime_.read(sequence_, 0, first,
                  TensorView::dense(k.data(), DType::kF32, kCount, kHeads, kDim),
                  TensorView::dense(v.data(), DType::kF32, kCount, kHeads, kDim), stream_.view());
    device_->synchronize(stream_.view());
    for (int t = 0; t < kCount; ++t) {
      const int residue = static_cast<int>((first + t) % kPeriod);
      for (int h = 0; h < kHeads; ++h) {
        const auto at = static_cast<size_t>((t * kHeads + h) * kDim + 5);
        ASSERT_EQ(k[at], key(h, residue, 5)) << first + t;
        ASSERT_EQ(v[at], value(h, residue, 5)) << first + t;
      }
    }
  }

 private:
  static constexpr float kScale = 0.08838834764f;  // 1 / sqrt(128)

  static std::unique_ptr<Device> open() {
    DeviceOptions options;
    options.name = "emulated";
    options.threads = 2;
    options.host_alias_bytes = kAlias;
    return open_device(options);
  }
  static Geometry geometry() {
    return {.layers = 1,
            .kv_heads = kHeads,
            .query_heads = kHeads,
            .key_dim = kDim,
            .value_dim = kDim,
            .rotary_dims = kDim,
            .rotary_layout = RotaryLayout::kHalf,
            .scale = kScale,
            .windows = {}};
  }
  // The budget is exactly the sought tokens, the sinks and the recent tokens.
  static Config config(int64_t tokens) {
    Config config;
    const int64_t periods = tokens / kPeriod;
    config.selection.fac_tokens = {{.tokens = 3 * periods + kSinks + kRecent, .share = 0}};
    config.selection.sinks = kSinks;
    config.selection.low_bit_tokens = TokenCount{};
    config.selection.recent = kRecent;
    return config;
  }

  std::vector<int64_t> set_of(int head, int64_t length) const {
    std::vector<int64_t> set;
    for (int64_t i = 0; i < kSinks; ++i) set.push_back(i);
    for (int64_t period = 0; period < tokens_ / kPeriod; ++period) {
      for (const int residue : sought(head)) set.push_back(period * kPeriod + residue);
    }
    for (int64_t i = length - kRecent; i < length; ++i) set.push_back(i);
    return set;
  }

  // One period of tokens, [token][head][dim].
  Buffer upload(float (*of)(int, int, int)) {
    std::vector<uint16_t> host(static_cast<size_t>(kPeriod) * kHeads * kDim);
    size_t at = 0;
    for (int t = 0; t < kPeriod; ++t) {
      for (int h = 0; h < kHeads; ++h) {
        for (int d = 0; d < kDim; ++d) host[at++] = bf16_from_f32(of(h, t, d));
      }
    }
    Buffer buffer = device_->allocate(MemorySpace::kDevice, host.size() * 2, "test input");
    device_->copy(buffer.data(), host.data(), buffer.bytes(), CopyKind::kHostToDevice,
                  stream_.view());
    device_->synchronize(stream_.view());
    return buffer;
  }

  std::vector<float> step(int tokens, StepMode mode, const std::vector<uint16_t>& q) {
    const auto offset =
        static_cast<size_t>(runtime_.length(sequence_) % kPeriod) * kHeads * kDim * 2;
    const StepSequence part{sequence_, tokens, mode};
    runtime_.begin_step({&part, 1});
    runtime_.append(
        0, ConstTensorView::dense(keys_.data() + offset, DType::kBF16, tokens, kHeads, kDim),
        ConstTensorView::dense(values_.data() + offset, DType::kBF16, tokens, kHeads, kDim),
        stream_.view());
    std::vector<float> result(q.size());
    if (!q.empty()) {
      const Buffer queries = device_->allocate(MemorySpace::kDevice, q.size() * 2, "test input");
      const Buffer out = device_->allocate(MemorySpace::kDevice, q.size() * 4, "test output");
      device_->copy(queries.data(), q.data(), queries.bytes(), CopyKind::kHostToDevice,
                    stream_.view());
      runtime_.attend(0, ConstTensorView::dense(queries.data(), DType::kBF16, 1, kHeads, kDim),
                      TensorView::dense(out.data(), DType::kF32, 1, kHeads, kDim), nullptr,
                      stream_.view());
      device_->copy(result.data(), out.data(), out.bytes(), CopyKind::kDeviceToHost,
                    stream_.view());
      device_->synchronize(stream_.view());
    }
    runtime_.end_step();
    return result;
  }

  const int64_t tokens_;
  std::unique_ptr<Device> device_;
  Runtime runtime_;
  Stream stream_;
  Buffer keys_, values_;
  SequenceId sequence_{};
};

// Whole periods and part of a page; the newest tokens' queries look for nothing.
void expect_exact(int64_t tokens) {
  LongContext context(tokens);
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> out = context.decode();
    const std::vector<float> expected = context.expected();
    for (size_t at = 0; at < out.size(); ++at) ASSERT_NEAR(out[at], expected[at], 2e-5f) << at;
  }
  const StepCounters rows = context.metrics().rows;
  EXPECT_EQ(rows.protected_rows, 3u * kHeads * (kSinks + kRecent));
  EXPECT_GT(rows.hits, rows.misses);  // the second step finds what the first one fetched
  for (const int64_t first : {int64_t{0}, tokens / 2, tokens - 3}) context.expect_rows(first);
}

TEST(LongContext, Of128kTokens) { expect_exact(9 * kPeriod + 61); }

TEST(LongContext, OfAMillionTokens) {
  constexpr int64_t kTokens = 67 * kPeriod + 61;
  static_assert(kTokens > 1 << 20 && kTokens * kHeads * kRowBytes > int64_t{1} << 32);
  expect_exact(kTokens);
}

}  // namespace
}  // namespace fasa
