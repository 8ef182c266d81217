// The paged API, call by call: a failed call changes nothing.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/pages/paged_runtime.h"
#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"
#include "tests/simulation/fault_injection.h"
#include "tests/simulation/plain_cache.h"
#include "tests/support/injecting_device.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {
namespace {

constexpr FaultPoints kCalls = {FaultPoint::kAllocation, FaultPoint::kCopy,   FaultPoint::kFill,
                                FaultPoint::kEvent,      FaultPoint::kStream, FaultPoint::kHeap};

Geometry page_geometry() {
  return {.layers = 1,
          .kv_heads = 2,
          .query_heads = 4,
          .key_dim = 12,
          .value_dim = 8,
          .rotary_dims = 12,
          .scale = 0.25f,
          .windows = {}};
}

Config page_config(RowPlacement rows) {
  Config config;
  config.selection.fac_tokens = {{.tokens = 20, .share = 0}};
  config.selection.low_bit_tokens = TokenCount{};  // the expected outputs attend to rows alone
  config.selection.sinks = 2;
  config.selection.recent = 4;
  config.placement.rows = rows;
  config.placement.hot_rows = 24;
  return config;
}

struct PageSetup {
  const char* name = "";
  int page_size = 64;
  RowPlacement rows = RowPlacement::kHost;
};

// Two sequences in pages in any order; both sequences' newest tokens are attended to.
class PagedFixture {
 public:
  PagedFixture(const PageSetup& setup, FaultInjector& injector)
      : setup_(setup),
        injector_(injector),
        geometry_(page_geometry()),
        config_(page_config(setup.rows)),
        stepped_(random_order(3)),
        device_(stepped_, injector),
        plain_(config_, geometry_, DType::kBF16, all_slice_dims(geometry_)),
        compute_(device_.create_stream(StreamPriority::kNormal, "compute")),
        paged_(device_, config_, geometry_, DType::kBF16, all_slice_dims(geometry_),
               {.page_size = setup.page_size, .num_pages = 40, .max_sequences = 4}) {
    for (int which = 0; which < 2; ++which) {
      for (int64_t at = 0; at < tokens_of(which); at += setup_.page_size) append_page(which, at);
    }
    attend();
  }

  PagedRuntime& paged() { return paged_; }
  InjectingDevice& device() { return device_; }

  static int64_t tokens_of(int which) { return which == 0 ? 150 : 70; }
  // Page ids fall, so pages are not in order.
  int64_t page_of(int which, int64_t position) const {
    const int64_t page = (which == 0 ? 39 : 19) - position / setup_.page_size;
    const auto moved = moved_.find(page);
    return moved == moved_.end() ? page : moved->second;
  }
  // Copies the full page of one sequence and the open page of the other; the sequences use the
  // copies from then on. A second call copies them back.
  void move_pages() {
    PageCopy copies[] = {{page_of(0, 0), 2}, {page_of(1, tokens_of(1) - 1), 3}};
    std::map<int64_t, int64_t> moved;
    {
      const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);
      if (moved_.empty()) {
        for (const PageCopy& copy : copies) moved.emplace(copy.source, copy.destination);
      } else {
        for (PageCopy& copy : copies) {
          for (const auto& [from, to] : moved_) {
            if (to == copy.source) copy.destination = from;
          }
        }
      }
    }
    paged_.copy_pages(copies);
    moved_ = std::move(moved);
  }
  // Appends again the full page that begins at `first`, with the same contents.
  void append_page(int which, int64_t first) {
    const int64_t end = std::min(tokens_of(which), first + setup_.page_size);
    std::vector<int64_t> slots;
    std::vector<float> k, v;
    {
      const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);  // a caller's own work
      for (int64_t i = first; i < end; ++i) {
        slots.push_back(page_of(which, i) * setup_.page_size + i % setup_.page_size);
        take(which, i, TokenPart::kKey, geometry_.kv_heads * geometry_.key_dim, &k);
        take(which, i, TokenPart::kValue, geometry_.kv_heads * geometry_.value_dim, &v);
      }
    }
    const auto tokens = end - first;
    try {
      paged_.append(0,
                    ConstTensorView::dense(k.data(), DType::kF32, tokens, geometry_.kv_heads,
                                           geometry_.key_dim),
                    ConstTensorView::dense(v.data(), DType::kF32, tokens, geometry_.kv_heads,
                                           geometry_.value_dim),
                    slots, compute_.view());
    } catch (...) {
      device_.synchronize(compute_.view());
      throw;
    }
    device_.synchronize(compute_.view());
  }
  // Adds a sequence equal to the first one, whose last page is a copy.
  void copy_last_page() {
    const PageCopy copy = {page_of(0, tokens_of(0) - 1), 0};
    paged_.copy_pages({&copy, 1});
  }
  void attend_copied() {
    std::vector<int32_t> table;
    std::vector<float> q;
    const int32_t length = static_cast<int32_t>(tokens_of(0));
    {
      const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);
      for (int64_t at = 0; at < length; at += setup_.page_size) {
        table.push_back(static_cast<int32_t>(page_of(0, at)));
      }
      table.back() = 0;
      take(0, length - 1, TokenPart::kQuery, geometry_.query_heads * geometry_.key_dim, &q);
      out_.assign(static_cast<size_t>(geometry_.query_heads * geometry_.value_dim), 0);
    }
    const auto columns = static_cast<int64_t>(table.size());
    try {
      paged_.attend(0,
                    ConstTensorView::dense(q.data(), DType::kF32, 1, geometry_.query_heads,
                                           geometry_.key_dim),
                    {table.data(), 1, columns, columns}, {&length, 1},
                    TensorView::dense(out_.data(), DType::kF32, 1, geometry_.query_heads,
                                      geometry_.value_dim),
                    nullptr, compute_.view());
    } catch (...) {
      device_.synchronize(compute_.view());
      throw;
    }
    device_.synchronize(compute_.view());
    expect_attended(0, 0);
  }
  void attend() {
    std::vector<int32_t> table, lengths;
    std::vector<float> q;
    {
      const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);
      const int64_t columns = (tokens_of(0) + setup_.page_size - 1) / setup_.page_size;
      for (int which = 0; which < 2; ++which) {
        for (int64_t column = 0; column < columns; ++column) {
          table.push_back(static_cast<int32_t>(page_of(which, column * setup_.page_size)));
        }
        lengths.push_back(static_cast<int32_t>(tokens_of(which)));
        take(which, tokens_of(which) - 1, TokenPart::kQuery,
             geometry_.query_heads * geometry_.key_dim, &q);
      }
      out_.assign(static_cast<size_t>(2 * geometry_.query_heads * geometry_.value_dim), 0);
    }
    const auto columns = static_cast<int64_t>(table.size() / 2);
    try {
      paged_.attend(0,
                    ConstTensorView::dense(q.data(), DType::kF32, 2, geometry_.query_heads,
                                           geometry_.key_dim),
                    {table.data(), 2, columns, columns}, lengths,
                    TensorView::dense(out_.data(), DType::kF32, 2, geometry_.query_heads,
                                      geometry_.value_dim),
                    nullptr, compute_.view());
    } catch (...) {
      device_.synchronize(compute_.view());
      throw;
    }
    device_.synchronize(compute_.view());
  }
  void expect_right() {
    attend();
    for (int which = 0; which < 2; ++which) expect_attended(which, which);
  }

 private:
  // Expects the last attention's output for the call's sequence `index` to be that of sequence
  // `which`.
  void expect_attended(int which, int64_t index) {
    const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);
    const int64_t width = int64_t{geometry_.query_heads} * geometry_.value_dim;
    const History history(static_cast<size_t>(tokens_of(which)), static_cast<uint8_t>(which));
    const auto length = static_cast<int64_t>(history.size());
    const auto expected = plain_.attend(history, length - 1, StepMode::kDecode);
    const std::vector<float> given(out_.begin() + index * width,
                                   out_.begin() + (index + 1) * width);
    EXPECT_EQ(given, expected[0].out) << "sequence " << which;
  }
  static void take(int which, int64_t position, TokenPart part, int width,
                   std::vector<float>* tensor) {
    const float* values = token_values(which, 0, position, part);
    tensor->insert(tensor->end(), values, values + width);
  }

  const PageSetup setup_;
  FaultInjector& injector_;
  const Geometry geometry_;
  const Config config_;
  SteppedDevice stepped_;
  InjectingDevice device_;
  PlainCache plain_;
  Stream compute_;
  PagedRuntime paged_;
  std::vector<float> out_;
  std::map<int64_t, int64_t> moved_;  // moved pages: old id -> new id
};

// A call that runs out of memory changes nothing. After a device failure no data is valid: every
// later call reports it, and the runtime can be destroyed.
class PagedFaultCase final : public FaultCase {
 public:
  using Call = std::function<void(PagedFixture&)>;
  // `prepare`: empty, or run before each call on a PagedFixture made for that call.
  PagedFaultCase(const PageSetup& setup, FaultInjector& injector, Call call, Call prepare = {})
      : setup_(setup), injector_(injector), call_(std::move(call)), prepare_(std::move(prepare)) {
    begin_anew();
  }
  void prepare() override {
    if (prepare_) begin_anew();
  }
  void call() override { call_(*fixture_); }
  void check_error(FaultPoint point, const std::exception& error) override {
    of_heap_ = point == FaultPoint::kHeap;
    of_device_ = dynamic_cast<const DeviceError*>(&error) != nullptr;
    if (of_device_) failure_ = error.what();
    // If work was partly enqueued, running out of host memory is a device failure, too.
    if (!(of_device_ && of_heap_)) FaultCase::check_error(point, error);
  }
  void check_unchanged() override {
    try {
      fixture_->attend();
    } catch (const DeviceError& error) {
      EXPECT_TRUE(of_device_ || of_heap_) << error.what();
      if (of_device_) {
        EXPECT_EQ(error.what(), failure_);
      }
      begin_anew();
      return;
    }
    EXPECT_FALSE(of_device_) << "a later call went through";
    check_done();
  }
  void check_done() override {
    const KvMemory memory = fixture_->paged().memory();
    EXPECT_EQ(memory.device_total(), fixture_->device().held_bytes(MemorySpace::kDevice));
    EXPECT_EQ(memory.host_total(), fixture_->device().held_bytes(MemorySpace::kHost));
    fixture_->expect_right();
  }
  void undo() override {}

 private:
  void begin_anew() {
    fixture_.emplace(setup_, injector_);
    if (prepare_) prepare_(*fixture_);
  }

  const PageSetup setup_;
  FaultInjector& injector_;
  const Call call_;
  const Call prepare_;
  std::optional<PagedFixture> fixture_;
  bool of_device_ = false;
  bool of_heap_ = false;
  std::string failure_;
};

class PagedFaults : public ::testing::TestWithParam<PageSetup> {
 protected:
  void run(const std::string& what, const PagedFaultCase::Call& call,
           const PagedFaultCase::Call& prepare = {}) {
    for (const FaultMode mode : {FaultMode::kOnce, FaultMode::kFromThenOn}) {
      FaultInjector injector;
      PagedFaultCase fault_case(GetParam(), injector, call, prepare);
      const std::string name = std::string(GetParam().name) + ": " + what;
      total_ += inject_faults(name, injector, fault_case, planned(name, kCalls, mode, 2));
      if (HasFailure()) return;
    }
  }
  void TearDown() override {
    std::cout << "injected " << total_.injected << ", of which " << total_.thrown
              << " came out as errors\n";
    RecordProperty("injected", static_cast<int>(total_.injected));
  }
  FaultCount total_;
};

TEST_P(PagedFaults, AppendAttendCopy) {
  const int64_t size = GetParam().page_size;
  run("attend", [](PagedFixture& fixture) { fixture.attend(); });
  run("append of a whole page", [](PagedFixture& fixture) { fixture.append_page(0, 0); });
  run("append of an open page", [size](PagedFixture& fixture) {
    fixture.append_page(0, (PagedFixture::tokens_of(0) - 1) / size * size);
  });
  run("copy", [](PagedFixture& fixture) { fixture.move_pages(); });
}

// The view of another sequence with the same beginning may be the one that is evicted.
TEST_P(PagedFaults, AttendToOneThatBeginsAlike) {
  run(
      "attend to a copy", [](PagedFixture& fixture) { fixture.attend_copied(); },
      [](PagedFixture& fixture) { fixture.copy_last_page(); });
}

INSTANTIATE_TEST_SUITE_P(Setups, PagedFaults,
                         ::testing::Values(PageSetup{"pages_of_64"}, PageSetup{"pages_of_128", 128},
                                           PageSetup{"on_the_device", 64, RowPlacement::kDevice}),
                         [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace fasa::testing
