// Slots, page tables and lengths in GPU memory, through the C interface: the same bits as with
// tables in host memory, one wait per step, and a specific error for memory that the GPU or the
// host cannot access.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/bindings/c/fake_gpu_apis.h"

namespace fasa {
namespace {

// Two sequences: one of pages 2, 0 and 3, one of page 1. Every table has one unused column.
constexpr int kFirst = kTokens - 1, kSecond = 40, kColumns = 4;
constexpr std::array<int32_t, 2 * kColumns> kTable = {2, 0, 3, -7, 1, -7, -7, -7};
constexpr std::array<int32_t, 2> kLengths = {kFirst, kSecond};

std::vector<int64_t> slots_of_both() {
  std::vector<int64_t> slots;
  for (int i = 0; i < kFirst; ++i) {
    slots.push_back(kTable[static_cast<size_t>(i / kPage)] * kPage + i % kPage);
  }
  for (int i = 0; i < kSecond; ++i) slots.push_back(kTable[kColumns] * kPage + i);
  return slots;
}

class DeviceTables : public FakeGpuApis {
 protected:
  static constexpr int kBoth = kFirst + kSecond;

  DeviceTables() {
    for (size_t l = 0; l < kLayers; ++l) {
      keys_[l] = filled(device(), kBoth * kKv * kDim, static_cast<int>(l));
      values_[l] = filled(device(), kBoth * kKv * kDim, 10 + static_cast<int>(l));
      queries_[l] = filled(device(), kBoth * kQuery * kDim, 20 + static_cast<int>(l));
    }
    out_ = device().allocate(MemorySpace::kDevice, kBoth * kQuery * kDim * sizeof(float), "out");
    fasa_paged_options shape = FASA_PAGED_OPTIONS_INIT;
    shape.page_size = kPage;
    shape.num_pages = 4;
    fasa_paged* paged = nullptr;
    EXPECT_EQ(fasa_paged_create(&options_, &shape, &paged), FASA_OK) << fasa_last_error();
    paged_.reset(paged);
    EXPECT_EQ(fake_.create_stream(&native_, StreamPriority::kNormal), cuda_status::kSuccess);
    EXPECT_EQ(fasa_stream_from_native(&device_, native_, &stream_), FASA_OK) << fasa_last_error();
  }
  ~DeviceTables() override {
    paged_.reset();
    fasa_stream_destroy(stream_);
    if (native_ != nullptr) fake_.destroy_stream(native_);
  }

  // Device memory that holds nonsense until the caller's stream has copied `values` into it.
  template <typename T>
  Buffer coming(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    Buffer buffer = device().allocate(MemorySpace::kDevice, bytes, "a caller's");
    const Stream stream = device().create_stream(StreamPriority::kNormal, "nonsense");
    device().fill(buffer.data(), 0x55, bytes, stream.view());
    device().synchronize(stream.view());
    EXPECT_EQ(fake_.copy(buffer.data(), values.data(), bytes, CopyKind::kHostToDevice, native_),
              cuda_status::kSuccess);
    return buffer;
  }
  void overwrite(const Buffer& buffer) {
    const Stream stream = device().create_stream(StreamPriority::kNormal, "nonsense");
    device().fill(buffer.data(), 0x55, buffer.bytes(), stream.view());
    device().synchronize(stream.view());
  }

  struct Tables {
    const int64_t* slots;
    const int32_t* table;
    const int32_t* lengths;
  };
  fasa_status append(int layer, const Tables& tables) {
    const auto l = static_cast<size_t>(layer);
    const fasa_tensor k = rows(keys_[l], 0, kBoth, kKv), v = rows(values_[l], 0, kBoth, kKv);
    return fasa_append_paged(paged_.get(), layer, &k, &v, tables.slots, kBoth, stream_);
  }
  fasa_status prefill(int layer, const Tables& tables) {
    const fasa_block_table blocks = {tables.table, 2, 3, kColumns};
    const fasa_tensor q = rows(queries_[static_cast<size_t>(layer)], 0, kBoth, kQuery);
    const fasa_tensor out = rows(out_, 0, kBoth, kQuery);
    return fasa_prefill_paged(paged_.get(), layer, &q, &blocks, tables.lengths, tables.lengths, 2,
                              &out, nullptr, stream_);
  }
  fasa_status attend(int layer, const Tables& tables) {
    const fasa_block_table blocks = {tables.table, 2, 3, kColumns};
    const fasa_tensor q = rows(queries_[static_cast<size_t>(layer)], 0, 2, kQuery);
    const fasa_tensor out = rows(out_, 0, 2, kQuery);
    return fasa_attend_paged(paged_.get(), layer, &q, &blocks, tables.lengths, 2, &out, nullptr,
                             stream_);
  }
  // Runs a step of all layers and returns its outputs.
  std::vector<float> step(const Tables& tables) {
    std::vector<float> outputs;
    const auto take = [&](fasa_status status, int tokens) {
      EXPECT_EQ(status, FASA_OK) << fasa_last_error();
      if (!outputs_wanted_) return;
      EXPECT_EQ(fasa_stream_synchronize(stream_), FASA_OK) << fasa_last_error();
      const std::vector<float> now = output(tokens);
      outputs.insert(outputs.end(), now.begin(), now.end());
    };
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(append(layer, tables), FASA_OK) << fasa_last_error();
      take(prefill(layer, tables), kBoth);
      take(attend(layer, tables), 2);
    }
    return outputs;
  }
  // The number of times that the step waited for the caller's stream.
  int64_t waits_of(const Tables& tables) {
    outputs_wanted_ = false;
    const int64_t before = fake_.calls["synchronize_stream"];
    step(tables);
    outputs_wanted_ = true;
    return fake_.calls["synchronize_stream"] - before;
  }
  void expect_usage(fasa_status status, const std::string& words) {
    EXPECT_EQ(status, FASA_ERROR_USAGE);
    EXPECT_NE(std::string(fasa_last_error()).find(words), std::string::npos) << fasa_last_error();
  }

  const std::vector<int64_t> slots_ = slots_of_both();
  const Tables host_ = {slots_.data(), kTable.data(), kLengths.data()};
  std::unique_ptr<fasa_paged, void (*)(fasa_paged*)> paged_{nullptr, fasa_paged_destroy};
  void* native_ = nullptr;
  fasa_stream* stream_ = nullptr;
  bool outputs_wanted_ = true;
};

std::vector<int32_t> list_of(const auto& values) { return {values.begin(), values.end()}; }

TEST_F(DeviceTables, GiveTheBitsOfHostTables) {
  const std::vector<float> expected = step(host_);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kLayers * (kBoth + 2) * kQuery * kDim));
  // The caller's stream still has to compute the tables; the host has not waited for it.
  const Buffer slots = coming(slots_), table = coming(list_of(kTable));
  const Buffer lengths = coming(list_of(kLengths));
  const Tables there = {slots.as<int64_t>(), table.as<int32_t>(), lengths.as<int32_t>()};
  EXPECT_EQ(step(there), expected);
  const std::array<fasa_memory_range, 3> ranges = {{{slots.data(), slots.bytes()},
                                                    {table.data(), table.bytes()},
                                                    {lengths.data(), lengths.bytes()}}};
  OK(fasa_paged_read_tables(paged_.get(), ranges.data(), ranges.size(), stream_));
  EXPECT_EQ(step(there), expected);
}

TEST_F(DeviceTables, AStepWaitsOnce) {
  for (int i = 0; i < 4; ++i) step(host_);  // buffers reach their final size
  const int64_t host = waits_of(host_);
  const Buffer slots = coming(slots_), table = coming(list_of(kTable));
  const Buffer lengths = coming(list_of(kLengths));
  const Tables there = {slots.as<int64_t>(), table.as<int32_t>(), lengths.as<int32_t>()};
  const std::array<fasa_memory_range, 3> ranges = {{{slots.data(), slots.bytes()},
                                                    {table.data(), table.bytes()},
                                                    {lengths.data(), lengths.bytes()}}};
  const int64_t before = fake_.calls["synchronize_stream"];
  OK(fasa_paged_read_tables(paged_.get(), ranges.data(), ranges.size(), stream_));
  const int64_t reading = fake_.calls["synchronize_stream"] - before;
  EXPECT_EQ(reading, 1);
  EXPECT_EQ(waits_of(there), host);
  // Without fasa_paged_read_tables every call waits.
  OK(fasa_paged_read_tables(paged_.get(), nullptr, 0, stream_));
  EXPECT_EQ(waits_of(there), host + 3 * kLayers);
}

TEST_F(DeviceTables, HoldUntilTheyAreReadAnew) {
  const std::vector<float> expected = step(host_);
  std::vector<int32_t> all = list_of(kTable);  // in one array, the lengths behind the table
  all.insert(all.end(), kLengths.begin(), kLengths.end());
  const Buffer one = coming(all), slots = coming(slots_);
  const Tables there = {slots.as<int64_t>(), one.as<int32_t>(), one.as<int32_t>() + kTable.size()};
  std::array<fasa_memory_range, 2> ranges = {
      {{one.data(), one.bytes()}, {slots.data(), slots.bytes()}}};
  OK(fasa_paged_read_tables(paged_.get(), ranges.data(), ranges.size(), stream_));
  overwrite(one);
  overwrite(slots);
  EXPECT_EQ(step(there), expected);
  OK(fasa_paged_read_tables(paged_.get(), nullptr, 0, stream_));
  expect_usage(attend(0, there), "seq_lens[0] = 1431655765");
  expect_usage(append(0, there), "slot_mapping[0] = ");
  // A failed read leaves no tables behind.
  fake_.fail_call("copy", 1, cuda_status::kInvalidValue);
  EXPECT_EQ(fasa_paged_read_tables(paged_.get(), ranges.data(), 1, stream_), FASA_ERROR_DEVICE);
  EXPECT_EQ(step(host_), expected);
}

TEST_F(DeviceTables, WhatCannotBeReachedIsRefusedByName) {
  const std::vector<float> expected = step(host_);
  const Buffer table = coming(list_of(kTable)), lengths = coming(list_of(kLengths));
  const Buffer slots = coming(slots_), other = coming(list_of(kTable));
  const Tables there = {slots.as<int64_t>(), table.as<int32_t>(), lengths.as<int32_t>()};
  Tables wrong = there;
  wrong.lengths = kLengths.data();
  expect_usage(attend(0, wrong), "seq_lens is in host memory, block_table in cuda:0");
  wrong = {slots_.data(), table.as<int32_t>(), kLengths.data()};
  expect_usage(prefill(0, wrong), "seq_lens is in host memory, block_table in cuda:0");
  wrong = there;
  wrong.table = reinterpret_cast<const int32_t*>(table.data() + 2);
  expect_usage(attend(0, wrong), "block_table begins at address");
  wrong.slots = reinterpret_cast<const int64_t*>(slots.data() + 4);
  expect_usage(append(0, wrong), "slot_mapping begins at address");
  const fasa_block_table backwards = {table.as<int32_t>() + kColumns, 2, 3, -kColumns};
  const fasa_tensor two = rows(queries_[0], 0, 2, kQuery), to = rows(out_, 0, 2, kQuery);
  expect_usage(
      fasa_attend_paged(paged_.get(), 0, &two, &backwards, there.lengths, 2, &to, nullptr, stream_),
      "block_table has stride -4 between its sequences; allowed on cuda:0: 0 or more");
  const fasa_block_table endless = {there.table, 2, 3, INT64_MAX / 2};
  expect_usage(
      fasa_attend_paged(paged_.get(), 0, &two, &endless, there.lengths, 2, &to, nullptr, stream_),
      "exceeds the address space");
  fake_.elsewhere[other.data()] = other.bytes();
  wrong.table = other.as<int32_t>();
  expect_usage(attend(0, wrong), "block_table lies in another device's memory");
  const fasa_memory_range range = {other.data(), 8};
  expect_usage(fasa_paged_read_tables(paged_.get(), &range, 1, stream_),
               "ranges[0] lies in another");
  const fasa_memory_range none = {nullptr, 8};
  expect_usage(fasa_paged_read_tables(paged_.get(), &none, 1, stream_), "ranges[0].data is null");

  std::vector<float> host(kBoth * kQuery * kDim);
  auto* const bytes = reinterpret_cast<std::byte*>(host.data());
  const fasa_tensor k = rows(keys_[0], 0, kBoth, kKv), q = rows(queries_[0], 0, 2, kQuery);
  const fasa_tensor out = rows(out_, 0, 2, kQuery);
  fasa_tensor bad = tensor(bytes, kBoth, kKv);
  expect_usage(fasa_append_paged(paged_.get(), 0, &k, &bad, host_.slots, kBoth, stream_),
               "v lies in host memory that is not pinned");
  const fasa_block_table blocks = {host_.table, 2, 3, kColumns};
  bad = tensor(bytes, 2, kQuery);
  expect_usage(
      fasa_attend_paged(paged_.get(), 0, &q, &blocks, host_.lengths, 2, &bad, nullptr, stream_),
      "out lies in host memory that is not pinned: allowed: the memory of cuda:0");
  expect_usage(
      fasa_attend_paged(paged_.get(), 0, &q, &blocks, host_.lengths, 2, &out, host.data(), stream_),
      "lse lies in host memory");
  bad = rows(queries_[0], 0, 2, kQuery);
  bad.data = static_cast<std::byte*>(bad.data) + 1;
  expect_usage(
      fasa_attend_paged(paged_.get(), 0, &bad, &blocks, host_.lengths, 2, &out, nullptr, stream_),
      "q begins at address");
  EXPECT_EQ(step(there), expected);
}

TEST_F(DeviceTables, PinnedMemoryServesBoth) {
  const std::vector<float> expected = step(host_);
  const Buffer lengths = device().allocate(MemorySpace::kHost, sizeof(kLengths), "a caller's");
  std::copy(kLengths.begin(), kLengths.end(), lengths.as<int32_t>());
  const int64_t before = fake_.copies;
  EXPECT_EQ(step({host_.slots, host_.table, lengths.as<int32_t>()}), expected);
  const Buffer out =
      device().allocate(MemorySpace::kHost, 2 * kQuery * kDim * sizeof(float), "out");
  const fasa_tensor q = rows(queries_[1], 0, 2, kQuery), result = tensor(out.data(), 2, kQuery);
  const fasa_block_table blocks = {host_.table, 2, 3, kColumns};
  OK(fasa_attend_paged(paged_.get(), 1, &q, &blocks, host_.lengths, 2, &result, nullptr, stream_));
  OK(fasa_stream_synchronize(stream_));
  const size_t last = expected.size() - 2 * kQuery * kDim;
  EXPECT_EQ(std::vector<float>(out.as<float>(), out.as<float>() + 2 * kQuery * kDim),
            std::vector<float>(expected.begin() + static_cast<int64_t>(last), expected.end()));
  EXPECT_GT(fake_.copies, before);
}

TEST_F(DeviceTables, StreamsOfOthersAndDestroyedOnes) {
  const std::vector<float> expected = step(host_);
  void* theirs = nullptr;
  ASSERT_EQ(fake_.create_stream(&theirs, StreamPriority::kNormal), cuda_status::kSuccess);
  fake_.foreign_streams.insert(theirs);
  fasa_stream* made = nullptr;
  expect_usage(fasa_stream_from_native(&device_, theirs, &made),
               "the stream belongs to cuda:1; allowed: streams of cuda:0");
  fake_.foreign_streams.clear();
  OK(fasa_stream_from_native(&device_, theirs, &made));
  ASSERT_EQ(fake_.destroy_stream(theirs), cuda_status::kSuccess);
  std::swap(made, stream_);
  expect_usage(append(0, host_), "native is not a valid stream, or the stream was destroyed");
  expect_usage(attend(0, host_), "or the stream was destroyed");
  expect_usage(fasa_stream_synchronize(stream_), "or the stream was destroyed");
  expect_usage(fasa_paged_read_tables(paged_.get(), nullptr, 0, stream_),
               "or the stream was destroyed");
  std::swap(made, stream_);
  fasa_stream_destroy(made);
  expect_usage(fasa_stream_from_native(&device_, theirs, &made), "or the stream was destroyed");
  EXPECT_EQ(step(host_), expected);
}

TEST_F(DeviceTables, SequencesStayAsTheyWere) {
  fasa_runtime* runtime = nullptr;
  OK(fasa_runtime_create(&options_, &runtime));
  const std::unique_ptr<fasa_runtime, void (*)(fasa_runtime*)> owned(runtime, fasa_runtime_destroy);
  fasa_sequence sequence = 0;
  OK(fasa_sequence_create(runtime, &sequence));
  const fasa_step_part part = {sequence, kSecond, FASA_PREFILL};
  OK(fasa_begin_step(runtime, &part, 1));
  std::vector<float> host(kSecond * kQuery * kDim);
  fasa_tensor bad = tensor(reinterpret_cast<std::byte*>(host.data()), kSecond, kKv);
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto l = static_cast<size_t>(layer);
    const fasa_tensor k = rows(keys_[l], 0, kSecond, kKv), v = rows(values_[l], 0, kSecond, kKv);
    const fasa_tensor q = rows(queries_[l], 0, kSecond, kQuery);
    const fasa_tensor out = rows(out_, 0, kSecond, kQuery);
    expect_usage(fasa_append(runtime, layer, &bad, &v, stream_), "k lies in host memory");
    OK(fasa_append(runtime, layer, &k, &v, stream_));
    expect_usage(fasa_attend(runtime, layer, &q, &out, host.data(), stream_), "lse lies in host");
    OK(fasa_attend(runtime, layer, &q, &out, nullptr, stream_));
  }
  OK(fasa_end_step(runtime, nullptr, 0));
  bad = tensor(reinterpret_cast<std::byte*>(host.data()), kSecond, kKv);
  const fasa_tensor k = rows(out_, 0, kSecond, kKv);
  expect_usage(fasa_read(runtime, sequence, 0, 0, &k, &bad, stream_), "v lies in host memory");
  int64_t length = 0;
  OK(fasa_sequence_length(runtime, sequence, &length));
  EXPECT_EQ(length, kSecond);
}

TEST_F(DeviceTables, LengthsOfAStatelessCall) {
  const auto batch = [](const Buffer& buffer) -> fasa_tensor {
    return {buffer.data(), FASA_F32, 4, {2, kKv, 30, kDim}, {0, 0, 0, 0}};
  };
  const fasa_tensor k = batch(keys_[0]), v = batch(values_[0]), q = rows(queries_[0], 0, 2, kQuery);
  const fasa_tensor out = rows(out_, 0, 2, kQuery);
  const std::vector<int64_t> lengths = {30, 17};
  OK(fasa_sparse_decode(&options_, 0, &q, &k, &v, lengths.data(), &out, nullptr, stream_));
  const std::vector<float> expected = output(2);
  const Buffer there = coming(lengths);
  OK(fasa_sparse_decode(&options_, 0, &q, &k, &v, there.as<int64_t>(), &out, nullptr, stream_));
  EXPECT_EQ(output(2), expected);
}

}  // namespace
}  // namespace fasa
