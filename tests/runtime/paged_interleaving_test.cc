// The paged API on a device that runs its streams in any order that events allow.
#include <gtest/gtest.h>

#include "tests/support/device_tensors.h"
#include "tests/support/runs.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {
namespace {

constexpr int kSteps = 6;
constexpr int64_t kLengths[] = {150, 61};  // of two sequences; the second one begins a page

struct Call {
  TensorView k, v, q, out;
};

class PagedRun {
 public:
  PagedRun(Device& device, int page_size)
      : page_size_(page_size),
        tensors_(device),
        paged_(device, config(), small_geometry(), DType::kBF16, all_slice_dims(small_geometry()),
               {.page_size = page_size, .num_pages = 1024 / page_size}) {}

  // Enqueues everything before anything runs.
  std::vector<float> run() {
    std::vector<std::vector<Call>> steps;
    steps.push_back(prepare({{1, 0, kLengths[0]}, {2, 0, kLengths[1]}}));
    for (int64_t step = 0; step < kSteps; ++step) {
      steps.push_back(prepare({{1, kLengths[0] + step, 1}, {2, kLengths[1] + step, 1}}));
    }
    std::vector<int64_t> slots = slots_of(1, 0, kLengths[0]);
    for (const int64_t slot : slots_of(2, 0, kLengths[1])) slots.push_back(slot);
    for (int layer = 0; layer < 3; ++layer) append(steps[0], layer, slots);
    for (int step = 0; step < kSteps; ++step) {
      decode(steps[static_cast<size_t>(step) + 1], step);
      if (step + 1 < kSteps) continue;
      // The newest rows may still be on their way to their pages, which are copied and read back.
      const int64_t last = (kLengths[0] + step) / page_size_;
      const int32_t page = page_of(1, last), other = page_of(2, 1023 / page_size_ / 2);
      const PageCopy copy{page, other};
      paged_.copy_pages({&copy, 1});
      read(page);
      read(other);
    }
    std::vector<float> all;
    for (const TensorView& rows : read_) {
      const auto values = tensors_.values(rows);
      all.insert(all.end(), values.begin(), values.end());
    }
    for (size_t step = 1; step < steps.size(); ++step) {
      for (const Call& call : steps[step]) {
        const auto values = tensors_.values(call.out);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

 private:
  struct Tokens {
    uint64_t seed;
    int64_t first, count;
  };
  static Config config() {
    Config config;
    config.selection.fac_tokens = {{.tokens = 40, .share = 0}};
    config.selection.sinks = 3;
    config.selection.recent = 5;
    config.selection.dense_layers = {1};
    config.placement.hot_rows = 50;
    config.prefetch.head_groups = 2;
    return config;
  }
  std::vector<Call> prepare(const std::vector<Tokens>& parts) {
    const Geometry& g = paged_.geometry();
    std::vector<Call> calls;
    int64_t tokens = 0;
    for (const Tokens& part : parts) tokens += part.count;
    for (int layer = 0; layer < g.layers; ++layer) {
      const auto tensor = [&](TapeKind kind, int heads, int dim) {
        std::vector<std::byte> host(static_cast<size_t>(tokens * heads * dim * 4));
        int64_t at = 0;
        for (const Tokens& part : parts) {
          for (int64_t t = part.first; t < part.first + part.count; ++t) {
            for (int i = 0; i < heads * dim; ++i) {
              store_element(DType::kF32, host.data(), at++,
                            tape_value(part.seed, layer, t, kind, i));
            }
          }
        }
        return TensorView::dense(tensors_.upload(host), DType::kF32, tokens, heads, dim);
      };
      calls.push_back({tensor(TapeKind::kKey, g.kv_heads, g.key_dim),
                       tensor(TapeKind::kValue, g.kv_heads, g.value_dim),
                       tensor(TapeKind::kQuery, g.query_heads, g.key_dim),
                       tensors_.zeros(tokens, g.query_heads, g.value_dim)});
    }
    return calls;
  }
  // Page ids in no particular order.
  int32_t page_of(uint64_t seed, int64_t index) const {
    return static_cast<int32_t>((seed == 1 ? 2 * index : 2 * index + 1) * 5 % (1024 / page_size_));
  }
  std::vector<int64_t> slots_of(uint64_t seed, int64_t first, int64_t count) const {
    std::vector<int64_t> slots;
    for (int64_t t = first; t < first + count; ++t) {
      slots.push_back(int64_t{page_of(seed, t / page_size_)} * page_size_ + t % page_size_);
    }
    return slots;
  }
  void append(const std::vector<Call>& calls, int layer, const std::vector<int64_t>& slots) {
    const Call& call = calls[static_cast<size_t>(layer)];
    paged_.append(layer, call.k, call.v, slots, tensors_.stream());
  }
  void read(int32_t page) {
    const Geometry& g = paged_.geometry();
    const int held = paged_.held(page, 2);
    const TensorView k = tensors_.zeros(held, g.kv_heads, g.key_dim);
    const TensorView v = tensors_.zeros(held, g.kv_heads, g.value_dim);
    paged_.read(page, 2, 0, k, v, tensors_.stream());
    read_.insert(read_.end(), {k, v});
  }
  void decode(const std::vector<Call>& calls, int64_t step) {
    std::vector<int32_t> table, lengths;
    std::vector<int64_t> slots;
    const int64_t columns = 200 / page_size_ + 1;
    for (const uint64_t seed : {1u, 2u}) {
      const int64_t length = kLengths[seed - 1] + step;
      slots.push_back(slots_of(seed, length, 1).front());
      lengths.push_back(static_cast<int32_t>(length + 1));
      for (int64_t i = 0; i < columns; ++i) table.push_back(page_of(seed, i));
    }
    for (int layer = 0; layer < 3; ++layer) {
      append(calls, layer, slots);
      const Call& call = calls[static_cast<size_t>(layer)];
      paged_.attend(layer, call.q, {table.data(), 2, columns, columns}, lengths, call.out, nullptr,
                    tensors_.stream());
    }
  }

  const int page_size_;
  DeviceTensors tensors_;
  std::vector<TensorView> read_;
  PagedRuntime paged_;
};

TEST(PagedInterleaving, EveryOrderGivesTheSameBits) {
  DeviceOptions options;
  options.name = "cpu";
  options.threads = 1;
  const auto cpu = open_device(options);
  for (const int page_size : {64, 128}) {
    const std::vector<float> expected = PagedRun(*cpu, page_size).run();
    std::vector<std::pair<std::string, StepPolicy>> orders = {
        {"as enqueued", fifo()},
        {"last enqueued first", lifo()},
        {"youngest stream first", youngest_stream_first()},
        {"oldest stream first", oldest_stream_first()},
        {"copies starved", starve("copy")},
        {"write-back starved", starve("write-back")},
        {"write-back starved, youngest first", starve("write-back", youngest_stream_first())},
        {"compute starved", starve("test")},
        {"control starved", starve("control")}};
    for (uint64_t seed = 0; seed < 30; ++seed) {
      orders.emplace_back("random " + std::to_string(seed), random_order(seed));
    }
    for (const auto& [name, policy] : orders) {
      SteppedDevice device(policy);
      EXPECT_TRUE(same_bits(expected, PagedRun(device, page_size).run()))
          << name << ", pages of " << page_size;
    }
  }
}

}  // namespace
}  // namespace fasa::testing
