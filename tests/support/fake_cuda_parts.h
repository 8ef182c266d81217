// The objects behind the handles of the fake CUDA runtime.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda.h"

namespace fasa {

struct FakeCuda::Recording {
  FakeStream* stream;
  bool passed = false;
  double seconds = 0;
};

struct FakeCuda::FakeEvent {
  std::shared_ptr<Recording> latest;  // null: never recorded, or in a capture
  std::shared_ptr<Capture> capture;   // the capture in which it was recorded
  std::vector<size_t> nodes;          // the capture's nodes that it stands for
};

struct FakeCuda::Operation {
  std::function<void()> work;
  std::shared_ptr<Recording> records;
  std::shared_ptr<Recording> waits;
};

struct FakeCuda::FakeStream {
  FakeCuda* cuda;
  std::deque<Operation> queue;
  std::shared_ptr<Capture> capture;  // the capture that it takes part in
};

struct FakeCuda::FakeGraph {
  struct Node {
    std::function<void()> work;
    std::vector<size_t> after;  // nodes that must run before
  };
  std::vector<Node> nodes;
  uint64_t bytes = 0;  // of an instance
};

// Order comes only from a stream's own work and from the events that it waited for.
struct FakeCuda::Capture {
  FakeStream* origin;
  std::thread::id thread;
  FakeGraph graph;
  // for each stream, the nodes that precede its next node
  std::map<FakeStream*, std::vector<size_t>> ends;
  bool broken = false;

  void add(FakeStream& stream, std::function<void()> work) {
    graph.nodes.push_back({std::move(work), ends[&stream]});
    ends[&stream] = {graph.nodes.size() - 1};
  }
  bool joined() const;  // all work precedes the origin stream's end
};

}  // namespace fasa
