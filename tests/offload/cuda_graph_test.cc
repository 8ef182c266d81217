// Graphs of the CUDA device against a fake runtime on the host: a launch enqueues the recorded work
// again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "offload/open_device.h"
#include "offload/timeline/timeline.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 64;

class CudaGraphTest : public ::testing::Test {
 protected:
  CudaGraphTest() {
    DeviceOptions options;
    options.name = "cuda:0";
    options.threads = 1;
    device_ = open_device(options, fake_.platform());
    for (Stream* stream : {&a_, &b_, &c_}) {
      *stream = device_->create_stream(StreamPriority::kNormal, stream == &a_ ? "a" : "b or c");
    }
    for (Event* event : {&forked_, &joined_, &outside_}) *event = device_->create_event();
    for (Buffer* buffer : {&x_, &y_}) {
      *buffer = device_->allocate(MemorySpace::kDevice, kBytes, "test");
    }
    host_ = device_->allocate(MemorySpace::kHost, kBytes, "test");
    back_ = device_->allocate(MemorySpace::kHost, kBytes, "test");
  }

  // host -> x on a, x -> y on b, y -> back on a.
  void enqueue() {
    device_->copy(x_.data(), host_.data(), kBytes, CopyKind::kHostToDevice, a_.view());
    device_->record(forked_.view(), a_.view());
    device_->wait(b_.view(), forked_.view());
    device_->copy(y_.data(), x_.data(), kBytes, CopyKind::kDeviceToDevice, b_.view());
    device_->record(joined_.view(), b_.view());
    device_->wait(a_.view(), joined_.view());
    device_->copy(back_.data(), y_.data(), kBytes, CopyKind::kDeviceToHost, a_.view());
  }
  template <typename Work>
  Graph record(const Work& work) {
    const StreamView others[] = {b_.view()};
    return device_->graphs()->record_graph(a_.view(), others, "test graph", work);
  }
  Graph record() {
    return record([&] { enqueue(); });
  }
  template <typename Failure, typename Work>
  std::string error_of(const Work& work) {
    try {
      work();
    } catch (const Failure& error) {
      return error.what();
    }
    return "";
  }

  FakeCuda fake_;
  std::unique_ptr<Device> device_;
  Stream a_, b_, c_;
  Event forked_, joined_, outside_;
  Buffer x_, y_, host_, back_;
};

TEST_F(CudaGraphTest, RunsAtEachLaunchOnWhatIsThereThen) {
  const Graph graph = record();
  *host_.as<int>() = 1;
  *back_.as<int>() = 0;
  device_->synchronize(a_.view());
  EXPECT_EQ(*back_.as<int>(), 0);  // recorded, not run
  for (const int value : {7, 8, 9}) {
    *host_.as<int>() = value;
    EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
    device_->synchronize(a_.view());
    EXPECT_EQ(*back_.as<int>(), value);
  }
  EXPECT_EQ(fake_.calls["launch_graph"], 3);
}

TEST_F(CudaGraphTest, ComesAfterAndBeforeItsStreamsOtherWork) {
  const Graph graph = record();
  *host_.as<int>() = 5;
  device_->fill(y_.data(), 1, kBytes, b_.view());  // the graph overwrites it
  EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
  device_->fill(y_.data(), 2, kBytes, b_.view());  // after the graph has read it
  device_->synchronize(b_.view());
  EXPECT_EQ(*back_.as<int>(), 5);
  EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
  device_->synchronize(b_.view());  // waiting for a member waits for the launch
  EXPECT_EQ(*back_.as<int>(), 5);
}

// Freeing waits for all streams, but not for those that are being recorded: waiting for one would
// end its capture. Their earlier work is waited for all the same.
TEST_F(CudaGraphTest, OtherThreadsMayFreeMemoryMeanwhile) {
  Buffer source = device_->allocate(MemorySpace::kHost, kBytes, "test");
  *source.as<int>() = 3;
  *host_.as<int>() = 5;
  device_->copy(x_.data(), source.data(), kBytes, CopyKind::kHostToDevice, a_.view());
  const Graph graph = record([&] {
    std::thread([&] { source = Buffer(); }).join();
    EXPECT_EQ(*x_.as<int>(), 3);  // copied before its source was freed
    enqueue();
    std::thread([&] {
      Buffer more = device_->allocate(MemorySpace::kDevice, kBytes, "test");
      more = Buffer();
      device_->set_timeline(nullptr);  // waits for all streams too
      device_->create_stream(StreamPriority::kNormal, "another");
    }).join();
  });
  EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
  device_->synchronize(a_.view());
  EXPECT_EQ(*back_.as<int>(), 5);
}

TEST_F(CudaGraphTest, MemoryFreedByTheRecordingThreadIsFreedAfterwards) {
  Buffer old = device_->allocate(MemorySpace::kDevice, 1000, "test");
  const uint64_t before = fake_.device_bytes;
  const Graph graph = record([&] {
    enqueue();
    old = Buffer();
    EXPECT_EQ(fake_.device_bytes, before);
  });
  EXPECT_LT(fake_.device_bytes, before);
  EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
  // Also if the recording fails.
  old = device_->allocate(MemorySpace::kDevice, 1000, "test");
  EXPECT_THROW(record([&] {
                 old = Buffer();
                 throw UsageError("the caller's");
               }),
               UsageError);
  EXPECT_LT(fake_.device_bytes, before);
}

// A caller may wrap a stream twice.
TEST_F(CudaGraphTest, AnotherHandleOfItsStreamMayEndMeanwhile) {
  void* native = nullptr;
  fake_.create_stream(&native, StreamPriority::kNormal);
  std::optional<Stream> first = adopt_stream(*device_, native, "first");
  std::optional<Stream> second = adopt_stream(*device_, native, "second");
  const Graph graph = device_->graphs()->record_graph(first->view(), {}, "test graph", [&] {
    std::thread([&] { second.reset(); }).join();
    device_->copy(x_.data(), host_.data(), kBytes, CopyKind::kHostToDevice, first->view());
  });
  *host_.as<int>() = 6;
  EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
  device_->synchronize(first->view());
  EXPECT_EQ(*x_.as<int>(), 6);
  first.reset();
  fake_.destroy_stream(native);
}

TEST_F(CudaGraphTest, EventsFromOutsideAreAwaitedAsTheyAreThen) {
  const Graph graph = record([&] {
    device_->wait(b_.view(), outside_.view());  // a recording alone is no event record outside it
    enqueue();
  });
  // Stream c writes the graph's input, and runs late.
  const Buffer source = device_->allocate(MemorySpace::kHost, kBytes, "test");
  const Buffer between = device_->allocate(MemorySpace::kDevice, kBytes, "test");
  for (const int value : {3, 4}) {
    *source.as<int>() = value;
    device_->copy(between.data(), source.data(), kBytes, CopyKind::kHostToDevice, c_.view());
    device_->copy(host_.data(), between.data(), kBytes, CopyKind::kDeviceToHost, c_.view());
    device_->record(outside_.view(), c_.view());
    EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
    device_->synchronize(a_.view());
    EXPECT_EQ(*back_.as<int>(), value);
  }
}

TEST_F(CudaGraphTest, ItsEventsStandForTheLaunch) {
  const Graph graph = record();
  *host_.as<int>() = 6;
  EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
  device_->synchronize(joined_.view());
  EXPECT_EQ(*back_.as<int>(), 6);
  EXPECT_TRUE(device_->done(joined_.view()));
  EXPECT_GT(device_->seconds_at(joined_.view()), 0);
  *host_.as<int>() = 7;
  EXPECT_TRUE(device_->graphs()->launch_graph(graph.view()));
  device_->wait(c_.view(), forked_.view());
  device_->synchronize(c_.view());
  EXPECT_EQ(*back_.as<int>(), 7);
  device_->record(joined_.view(), c_.view());  // an ordinary event again
  device_->synchronize(joined_.view());
}

// A recording that is never launched keeps the order: earlier work stays before it.
TEST_F(CudaGraphTest, AnUnfinishedRecordingKeepsTheOrder) {
  *host_.as<int>() = 9;
  device_->copy(x_.data(), host_.data(), kBytes, CopyKind::kHostToDevice, b_.view());
  device_->record(joined_.view(), b_.view());
  EXPECT_EQ(error_of<InputError>([&] {
              record([&] {
                enqueue();
                throw InputError("no more");
              });
            }),
            "no more");
  EXPECT_EQ(fake_.live_graphs, 0);
  device_->wait(c_.view(), joined_.view());
  device_->copy(back_.data(), x_.data(), kBytes, CopyKind::kDeviceToHost, c_.view());
  device_->synchronize(c_.view());
  EXPECT_EQ(*back_.as<int>(), 9);
  EXPECT_TRUE(
      device_->graphs()->launch_graph(record().view()));  // the streams can be recorded again
}

TEST_F(CudaGraphTest, CountsItsCopiesAndItsMemory) {
  const TransferTotals before = device_->transfers();
  const uint64_t used = device_->memory(MemorySpace::kDevice).used_bytes;
  {
    const Graph graph = record();
    EXPECT_EQ(device_->transfers().h2d_bytes, before.h2d_bytes);
    for (int i = 0; i < 3; ++i) device_->graphs()->launch_graph(graph.view());
    const TransferTotals after = device_->transfers();
    EXPECT_EQ(after.h2d_bytes - before.h2d_bytes, 3 * kBytes);
    EXPECT_EQ(after.d2h_operations - before.d2h_operations, 3u);
    EXPECT_EQ(device_->graphs()->graph_bytes(graph.view()), 3 * fake_.graph_node_bytes);
    EXPECT_EQ(device_->memory(MemorySpace::kDevice).used_bytes, used + 3 * fake_.graph_node_bytes);
  }
  EXPECT_EQ(device_->memory(MemorySpace::kDevice).used_bytes, used);
  EXPECT_EQ(fake_.live_graphs, 0);
}

TEST_F(CudaGraphTest, WithoutRoomThereIsNone) {
  const MemoryUse use = device_->memory(MemorySpace::kDevice);
  const Buffer rest =
      device_->allocate(MemorySpace::kDevice, use.limit_bytes - use.used_bytes - 1000, "test");
  EXPECT_THAT(error_of<BudgetError>([&] { record(); }), HasSubstr("graph"));
  fake_.graph_node_bytes = uint64_t{1} << 40;
  EXPECT_THAT(error_of<DeviceError>([&] { record(); }), HasSubstr("cudaGraphInstantiate"));
  EXPECT_EQ(fake_.live_graphs, 0);
}

TEST_F(CudaGraphTest, WhatCannotBePartOfItIsRefused) {
  std::vector<std::byte> unpinned(kBytes);
  const auto said = [&](const std::function<void()>& deed) {
    std::string error = error_of<UsageError>([&] { record(deed); });
    EXPECT_TRUE(device_->graphs()->launch_graph(record().view()));
    return error;
  };
  EXPECT_THAT(said([&] { device_->synchronize(a_.view()); }), HasSubstr("waiting for a stream"));
  EXPECT_THAT(said([&] { device_->synchronize(outside_.view()); }), HasSubstr("an event"));
  EXPECT_THAT(said([&] { device_->done(outside_.view()); }), HasSubstr("an event"));
  EXPECT_THAT(said([&] { device_->allocate(MemorySpace::kHost, 1, "test"); }),
              HasSubstr("allocating"));
  EXPECT_THAT(said([&] { device_->fill(x_.data(), 0, kBytes, c_.view()); }),
              HasSubstr("stream 'b or c'"));
  EXPECT_THAT(said([&] { device_->record(outside_.view(), c_.view()); }), HasSubstr("stream"));
  EXPECT_THAT(said([&] { device_->wait(c_.view(), outside_.view()); }), HasSubstr("stream"));
  EXPECT_THAT(said([&] {
                device_->copy(back_.data(), host_.data(), kBytes, CopyKind::kHostToHost, a_.view());
              }),
              HasSubstr("host code"));
  EXPECT_THAT(said([&] { record(); }), HasSubstr("recording a graph"));
  EXPECT_THAT(error_of<DeviceError>([&] {
                record([&] {
                  device_->copy(x_.data(), unpinned.data(), kBytes, CopyKind::kHostToDevice,
                                a_.view());
                });
              }),
              HasSubstr("copy host to device of 64 bytes"));
  Timeline timeline;
  device_->set_timeline(&timeline);
  EXPECT_THAT(error_of<UsageError>([&] { record(); }), HasSubstr("timeline"));
  device_->set_timeline(nullptr);
}

// The fake runtime rejects illegal capture calls as the real one does; fasa's device makes none.
TEST_F(CudaGraphTest, TheFakeRuntimeKnowsWhatIsIllegal) {
  void *s = nullptr, *t = nullptr, *event = nullptr, *graph = nullptr;
  fake_.create_stream(&s, StreamPriority::kNormal);
  fake_.create_stream(&t, StreamPriority::kNormal);
  fake_.create_event(&event);
  fake_.record(event, t);
  EXPECT_EQ(fake_.begin_capture(s), cuda_status::kSuccess);
  EXPECT_EQ(fake_.wait(s, event), cuda_status::kCaptureIsolation);
  EXPECT_EQ(fake_.fill(x_.data(), 0, kBytes, s), cuda_status::kCaptureInvalidated);
  EXPECT_EQ(fake_.end_capture(s, &graph), cuda_status::kCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);

  EXPECT_EQ(fake_.begin_capture(s), cuda_status::kSuccess);
  EXPECT_EQ(fake_.record(event, s), cuda_status::kSuccess);
  EXPECT_EQ(fake_.wait(t, event), cuda_status::kSuccess);
  EXPECT_EQ(fake_.fill(x_.data(), 0, kBytes, t), cuda_status::kSuccess);
  EXPECT_EQ(fake_.end_capture(s, &graph), cuda_status::kCaptureUnjoined);
  EXPECT_EQ(fake_.synchronize_event(event), cuda_status::kCapturedEvent);
  EXPECT_EQ(fake_.wait(t, event), cuda_status::kCapturedEvent);

  for (const auto& illegal : std::vector<std::function<CudaStatus()>>{
           [&] { return fake_.synchronize_stream(t); }, [&] { return fake_.query_event(event); },
           [&] {
             void* data = nullptr;
             return fake_.allocate(&data, 1, nullptr, t);
           }}) {
    EXPECT_EQ(fake_.begin_capture(s), cuda_status::kSuccess);
    EXPECT_EQ(illegal(), cuda_status::kCaptureUnsupported);
    EXPECT_EQ(fake_.end_capture(s, &graph), cuda_status::kCaptureInvalidated);
  }
  EXPECT_EQ(fake_.begin_capture(s), cuda_status::kSuccess);
  EXPECT_EQ(fake_.fill(x_.data(), 0, kBytes, nullptr), cuda_status::kCaptureImplicit);
  EXPECT_EQ(fake_.end_capture(s, &graph), cuda_status::kCaptureInvalidated);
  fake_.take_last_error();
  fake_.destroy_event(event);
  fake_.destroy_stream(s);
  fake_.destroy_stream(t);
}

}  // namespace
}  // namespace fasa
