#include "tests/simulation/sequence_fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "offload/open_device.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa::testing {
namespace {

Geometry fixture_geometry() {
  return {.layers = 3,
          .kv_heads = 2,
          .query_heads = 4,
          .key_dim = 12,
          .value_dim = 8,
          .rotary_dims = 12,
          .scale = 0.25f,
          .windows = {}};
}

Config fixture_config(const FixtureSetup& setup) {
  Config config;
  config.selection.fac_tokens = {{.tokens = 20, .share = 0}};
  config.selection.low_bit_tokens = TokenCount{};  // the expected outputs attend to rows alone
  config.selection.sinks = 2;
  config.selection.recent = 4;
  config.selection.dense_layers = setup.dense_layers;
  config.placement.rows = setup.rows;
  if (setup.hot_rows >= 0) config.placement.hot_rows = setup.hot_rows;
  config.prefetch.depth = setup.depth;
  return config;
}

std::unique_ptr<Device> fixture_device(const FixtureSetup& setup) {
  DeviceOptions options;
  options.name = "emulated";
  options.threads = 1;
  options.device_memory = uint64_t{64} << 20;
  if (setup.emulated) return open_device(options);
  return std::make_unique<SteppedDevice>(random_order(7), options);
}

}  // namespace

SequenceFixture::SequenceFixture(const FixtureSetup& setup)
    : setup_(setup),
      geometry_(fixture_geometry()),
      config_(fixture_config(setup)),
      slice_dims_(all_slice_dims(geometry_)),
      plain_(config_, geometry_, DType::kBF16, slice_dims_),
      inner_(fixture_device(setup)),
      device_(std::make_unique<InjectingDevice>(
          *inner_, injector_,
          setup.emulated ? InjectingDevice::Inner::kProducts : InjectingDevice::Inner::kTests)),
      runtime_(std::make_unique<Runtime>(*device_, config_, geometry_, DType::kBF16, slice_dims_)),
      compute_(device_->create_stream(StreamPriority::kNormal, "compute")) {
  if (!setup.emulated) {
    static_cast<SteppedDevice&>(*inner_).on_run(
        [this](const char*) { return injector_.fails(FaultPoint::kOperation); });
  }
  if (setup.queries) {
    queries_ = std::make_unique<NoisyQueries>(*device_, geometry_, 0.5f);
    runtime_->set_predictor(queries_.get());
  }
  a_ = runtime_->create();
  b_ = runtime_->create();
  histories_ = {{a_, {}}, {b_, {}}};
  for (const FixturePart& part : {FixturePart{a_, kLengthA, StepMode::kPrefill},
                                  FixturePart{b_, kLengthB, StepMode::kPrefill}}) {
    step({part});
    wrote({part});
  }
  const std::vector<FixturePart> both = {{.id = a_}, {.id = b_}};
  step(both);  // allocates scratch, tables and hot rows
  for (const FixturePart& part : both) runtime_->truncate(part.id, runtime_->length(part.id) - 1);
  step(both);
  for (const FixturePart& part : both) runtime_->truncate(part.id, runtime_->length(part.id) - 1);
}

SequenceFixture::~SequenceFixture() = default;

History& SequenceFixture::history(SequenceId id) {
  const auto found = std::find_if(histories_.begin(), histories_.end(),
                                  [&](const auto& one) { return one.first == id; });
  if (found != histories_.end()) return found->second;
  return histories_.emplace_back(id, History{}).second;
}

void SequenceFixture::write_tensors(const std::vector<FixturePart>& parts) {
  parts_ = parts;
  parts_written_.clear();
  int64_t tokens = 0;
  std::vector<NoisyQueries::Token> decoded;
  for (size_t i = 0; i < parts.size(); ++i) {
    History written = history(parts[i].id);
    decoded.push_back({static_cast<uint8_t>(i % 2), static_cast<int64_t>(written.size())});
    written.insert(written.end(), static_cast<size_t>(parts[i].tokens),
                   static_cast<uint8_t>(i % 2));
    tokens += parts[i].tokens;
    parts_written_.push_back(std::move(written));
  }
  if (queries_ != nullptr) queries_->expect(std::move(decoded));
  const Geometry& g = geometry_;
  tensors_.assign(static_cast<size_t>(g.layers), {});
  for (int layer = 0; layer < g.layers; ++layer) {
    Tensors& t = tensors_[static_cast<size_t>(layer)];
    const auto take = [&](std::vector<float>& tensor, int width, TokenPart kind) {
      for (size_t part = 0; part < parts.size(); ++part) {
        const History& written = parts_written_[part];
        const size_t start = written.size() - static_cast<size_t>(parts[part].tokens);
        for (size_t i = start; i < written.size(); ++i) {
          const float* values = token_values(written[i], layer, static_cast<int64_t>(i), kind);
          tensor.insert(tensor.end(), values, values + width);
        }
      }
    };
    take(t.k, g.kv_heads * g.key_dim, TokenPart::kKey);
    take(t.v, g.kv_heads * g.value_dim, TokenPart::kValue);
    take(t.q, g.query_heads * g.key_dim, TokenPart::kQuery);
    t.out.resize(static_cast<size_t>(tokens * g.query_heads * g.value_dim));
    t.lse.resize(static_cast<size_t>(tokens * g.query_heads));
  }
}

void SequenceFixture::enqueue(int64_t tokens) {
  const Geometry& g = geometry_;
  const StreamView stream = compute_.view();
  for (int layer = 0; layer < g.layers; ++layer) {
    Tensors& t = tensors_[static_cast<size_t>(layer)];
    runtime_->append(
        layer, ConstTensorView::dense(t.k.data(), DType::kF32, tokens, g.kv_heads, g.key_dim),
        ConstTensorView::dense(t.v.data(), DType::kF32, tokens, g.kv_heads, g.value_dim), stream);
    runtime_->attend(
        layer, ConstTensorView::dense(t.q.data(), DType::kF32, tokens, g.query_heads, g.key_dim),
        TensorView::dense(t.out.data(), DType::kF32, tokens, g.query_heads, g.value_dim),
        t.lse.data(), stream);
  }
}

void SequenceFixture::step(const std::vector<FixturePart>& parts) {
  std::vector<StepSequence> sequences;
  int64_t tokens = 0;
  {
    const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);  // a caller's own work
    write_tensors(parts);
    for (const FixturePart& part : parts) {
      sequences.push_back({part.id, part.tokens, part.mode});
      tokens += part.tokens;
    }
  }
  runtime_->begin_step(sequences);
  try {
    enqueue(tokens);
    runtime_->end_step();
  } catch (...) {
    const FaultInjector::Pause pause(injector_, FaultPoint::kOperation);
    runtime_->abort_step();
    throw;
  }
  device_->synchronize(compute_.view());
}

void SequenceFixture::wrote(const std::vector<FixturePart>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) history(parts[i].id) = parts_written_[i];
}

std::string SequenceFixture::difference() {
  const Geometry& g = geometry_;
  size_t first = 0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const History& written = parts_written_[part];
    const auto tokens = static_cast<size_t>(parts_[part].tokens);
    const auto expected =
        plain_.attend(written, static_cast<int64_t>(written.size() - tokens), parts_[part].mode);
    for (size_t layer = 0; layer < expected.size(); ++layer) {
      const auto same = [&](const std::vector<float>& given, const std::vector<float>& wanted,
                            int width) {
        return std::memcmp(given.data() + first * static_cast<size_t>(width), wanted.data(),
                           wanted.size() * sizeof(float)) == 0;
      };
      if (same(tensors_[layer].out, expected[layer].out, g.query_heads * g.value_dim) &&
          same(tensors_[layer].lse, expected[layer].lse, g.query_heads)) {
        continue;
      }
      return fmt::format("sequence {} of the step, layer {}, differs", part, layer);
    }
    first += tokens;
  }
  return "";
}

void SequenceFixture::expect_lengths() {
  EXPECT_EQ(runtime_->length(a_), static_cast<int64_t>(history(a_).size()));
  EXPECT_EQ(runtime_->length(b_), static_cast<int64_t>(history(b_).size()));
}

void SequenceFixture::expect_books() {
  expect_lengths();
  const KvMemory now = runtime_->memory();
  EXPECT_EQ(now.device_total(), device_->held_bytes(MemorySpace::kDevice));
  EXPECT_EQ(now.host_total(), device_->held_bytes(MemorySpace::kHost));
}

void SequenceFixture::expect_as_before(const KvMemory& was) {
  expect_books();
  const KvMemory now = runtime_->memory();
  // Free blocks are given back to the device.
  EXPECT_LE(now.device_slices, was.device_slices);
  EXPECT_LE(now.device_hot_rows, was.device_hot_rows);
  EXPECT_LE(now.host_rows, was.host_rows);
  // An allocation may have dropped device copies of rows, and memory that is free again may hold
  // new ones.
  if (setup_.rows != RowPlacement::kAuto) {
    EXPECT_LE(now.device_rows, was.device_rows);
  }
  // Tables have two halves, and keep the memory that they got. While every allocation failed,
  // scratch that was freed could not be allocated again.
  const uint64_t scratch = now.device_scratch - now.host_tables;
  const uint64_t scratch_before = was.device_scratch - was.host_tables;
  EXPECT_LE(scratch, scratch_before);
  if (injector_.fired() <= 1) {
    EXPECT_EQ(scratch, scratch_before);
  }
}

}  // namespace fasa::testing
