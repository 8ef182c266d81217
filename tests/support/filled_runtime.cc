#include "tests/support/filled_runtime.h"

#include <algorithm>

#include "offload/open_device.h"
#include "runtime/base/parallel.h"
#include "runtime/catalog/geometry_catalog.h"

namespace fasa {
namespace {

// bf16 values: an Irwin-Hall sum of four bytes, close enough to a normal distribution for scores.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint16_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    const auto sum = static_cast<int>((state_ & 255) + (state_ >> 8 & 255) + (state_ >> 16 & 255) +
                                      (state_ >> 24 & 255));
    return bf16_from_f32(static_cast<float>(sum - 510) / 148.0f);
  }

 private:
  uint64_t state_;
};

}  // namespace

Geometry llama_8b(int layers) {
  Geometry geometry = find_model_shape("Llama-3.1-8B").geometry;
  geometry.layers = layers;
  return geometry;
}

std::vector<int16_t> first_chunk_dims(const Geometry& geometry, int chunks) {
  std::vector<int16_t> dims;
  for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
    for (int i = 0; i < chunks; ++i) {
      const Geometry::Pair pair = geometry.chunk_dims(i);
      dims.push_back(static_cast<int16_t>(pair.first));
      dims.push_back(static_cast<int16_t>(pair.second));
    }
  }
  return dims;
}

std::vector<uint16_t> random_bf16(size_t values, uint64_t seed) {
  std::vector<uint16_t> data(values);
  constexpr size_t kBlock = 65536;
  parallel_for(size_t{0}, (values + kBlock - 1) / kBlock, [&](size_t block) {
    Random generator(seed * 1000003 + block);
    const size_t end = std::min(values, (block + 1) * kBlock);
    for (size_t i = block * kBlock; i < end; ++i) data[i] = generator.next();
  });
  return data;
}

FilledRuntime::FilledRuntime(const DeviceOptions& options, const Config& config,
                             const Geometry& geometry, const std::vector<int16_t>& slice_dims,
                             int64_t tokens)
    : FilledRuntime(open_device(options), config, geometry, slice_dims, tokens) {}

FilledRuntime::FilledRuntime(std::shared_ptr<Device> device, const Config& config,
                             const Geometry& geometry, const std::vector<int16_t>& slice_dims,
                             int64_t tokens)
    : device_(std::move(device)),
      runtime_(*device_, config, geometry, config.placement.row_dtype.value_or(DType::kBF16),
               slice_dims, tokens + kRoom),
      stream_(device_->create_stream(StreamPriority::kNormal, "compute")),
      sequence_(runtime_.create()) {
  fill(tokens);
}

void FilledRuntime::fill(int64_t tokens) {
  constexpr int kChunk = 2048;
  const Geometry& g = runtime_.geometry();
  runtime_.reserve(sequence_, tokens + kRoom, 1);
  const auto width = static_cast<size_t>(g.kv_heads * g.key_dim);
  // Chunks and layers start at different offsets in one pool of values: new ones for every layer
  // would take longer than the measurement.
  constexpr size_t kShift = 4099;
  const std::vector<uint16_t> pool = random_bf16(kChunk * width + kShift * 1024, 1);
  Buffer k = device_->allocate(MemorySpace::kDevice, kChunk * width * 2, "keys");
  Buffer v = device_->allocate(MemorySpace::kDevice, kChunk * width * 2, "values");
  size_t round = 0;
  for (int64_t done = 0; done < tokens;) {
    const int now = static_cast<int>(std::min<int64_t>(kChunk, tokens - done));
    const StepSequence part{sequence_, now, StepMode::kPrefill};
    runtime_.begin_step({&part, 1});
    for (int layer = 0; layer < g.storing_layers(); ++layer, ++round) {
      const auto bytes = static_cast<size_t>(now) * width * 2;
      device_->copy(k.data(), pool.data() + round % 1024 * kShift, bytes, CopyKind::kHostToDevice,
                    stream_.view());
      device_->copy(v.data(), pool.data() + (round + 7) % 1024 * kShift, bytes,
                    CopyKind::kHostToDevice, stream_.view());
      runtime_.append(layer,
                      ConstTensorView::dense(k.data(), DType::kBF16, now, g.kv_heads, g.key_dim),
                      ConstTensorView::dense(v.data(), DType::kBF16, now, g.kv_heads, g.key_dim),
                      stream_.view());
    }
    static_cast<void>(runtime_.linear_parts());  // states are only memory here
    runtime_.end_step();
    done += now;
  }
  device_->synchronize(stream_.view());
}

}  // namespace fasa
