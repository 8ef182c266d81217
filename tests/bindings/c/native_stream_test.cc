// A caller's own CUDA stream through the C interface, over a fake CUDA runtime: in every API the
// bits are the same as on the interface's own streams.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/bindings/c/fake_gpu_apis.h"

namespace fasa {
namespace {

class NativeStream : public FakeGpuApis {
 protected:
  void sequences(fasa_stream* stream, std::vector<float>& outputs) {
    fasa_runtime* runtime = nullptr;
    OK(fasa_runtime_create(&options_, &runtime));
    const std::unique_ptr<fasa_runtime, void (*)(fasa_runtime*)> owned(runtime,
                                                                       fasa_runtime_destroy);
    fasa_sequence sequence = 0;
    OK(fasa_sequence_create(runtime, &sequence));
    for (int first = 0; first < kTokens;) {
      const int tokens = first == 0 ? 128 : 1;
      const fasa_step_part part = {sequence, tokens, first == 0 ? FASA_PREFILL : FASA_DECODE};
      OK(fasa_begin_step(runtime, &part, 1));
      for (int layer = 0; layer < kLayers; ++layer) {
        const auto l = static_cast<size_t>(layer);
        const fasa_tensor k = rows(keys_[l], first, tokens, kKv);
        const fasa_tensor v = rows(values_[l], first, tokens, kKv);
        const fasa_tensor q = rows(queries_[l], first, tokens, kQuery);
        const fasa_tensor out = rows(out_, 0, tokens, kQuery);
        OK(fasa_append(runtime, layer, &k, &v, stream));
        OK(fasa_attend(runtime, layer, &q, &out, nullptr, stream));
        OK(stream != nullptr ? fasa_stream_synchronize(stream) : fasa_synchronize(runtime));
        const std::vector<float> now = output(tokens);
        outputs.insert(outputs.end(), now.begin(), now.end());
      }
      OK(fasa_end_step(runtime, nullptr, 0));
      first += tokens;
    }
  }

  void pages(fasa_stream* stream, std::vector<float>& outputs) {
    fasa_paged_options shape = FASA_PAGED_OPTIONS_INIT;
    shape.page_size = kPage;
    shape.num_pages = 4;
    fasa_paged* paged = nullptr;
    OK(fasa_paged_create(&options_, &shape, &paged));
    const std::unique_ptr<fasa_paged, void (*)(fasa_paged*)> owned(paged, fasa_paged_destroy);
    std::vector<int64_t> slots(kTokens);
    for (int i = 0; i < kTokens; ++i) slots[static_cast<size_t>(i)] = i;
    const std::array<int32_t, 3> table = {0, 1, 2};
    const fasa_block_table blocks = {table.data(), 1, 3, 0};
    const int32_t length = kTokens;
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto l = static_cast<size_t>(layer);
      const fasa_tensor k = rows(keys_[l], 0, kTokens, kKv);
      const fasa_tensor v = rows(values_[l], 0, kTokens, kKv);
      const fasa_tensor q = rows(queries_[l], kTokens - 1, 1, kQuery);
      const fasa_tensor out = rows(out_, 0, 1, kQuery);
      OK(fasa_append_paged(paged, layer, &k, &v, slots.data(), kTokens, stream));
      OK(fasa_attend_paged(paged, layer, &q, &blocks, &length, 1, &out, nullptr, stream));
      OK(stream != nullptr ? fasa_stream_synchronize(stream) : fasa_paged_synchronize(paged));
      const std::vector<float> now = output(1);
      outputs.insert(outputs.end(), now.begin(), now.end());
    }
  }
};

TEST_F(NativeStream, GivesTheBitsOfTheOwnOne) {
  void* theirs = nullptr;
  ASSERT_EQ(fake_.create_stream(&theirs, StreamPriority::kNormal), cuda_status::kSuccess);
  fasa_stream* stream = nullptr;
  OK(fasa_stream_from_native(&device_, theirs, &stream));
  std::vector<float> own, engine;
  sequences(nullptr, own);
  sequences(stream, engine);
  ASSERT_FALSE(own.empty());
  EXPECT_EQ(engine, own);
  std::vector<float> own_pages, engine_pages;
  pages(nullptr, own_pages);
  pages(stream, engine_pages);
  ASSERT_FALSE(own_pages.empty());
  EXPECT_EQ(engine_pages, own_pages);
  // Destroying the handle leaves the stream to the caller.
  fasa_stream_destroy(stream);
  EXPECT_EQ(fake_.destroy_stream(theirs), cuda_status::kSuccess);
}

TEST_F(NativeStream, OfNobodyIsRefusedInWords) {
  fasa_stream* stream = nullptr;
  EXPECT_EQ(fasa_stream_from_native(&device_, nullptr, &stream), FASA_ERROR_USAGE);
  EXPECT_NE(std::string(fasa_last_error()).find("cudaStreamLegacy"), std::string::npos);
  EXPECT_EQ(stream, nullptr);
}

}  // namespace
}  // namespace fasa
