#include "bindings/python/core/runtime.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/python/core/results.h"
#include "bindings/python/core/slice_choice.h"
#include "runtime/base/error.h"

namespace fasa::python {
namespace {

StepMode mode_of(const nb::handle& text) {
  const auto mode = nb::cast<std::string>(text);
  if (mode == "decode") return StepMode::kDecode;
  if (mode == "prefill") return StepMode::kPrefill;
  throw UsageError(fmt::format("mode of a step = \"{}\": allowed: decode, prefill", mode));
}

StepSequence part_of(nb::handle part, const Engine& engine) {
  StepSequence step;
  const PySequence* sequence = nullptr;
  if (nb::try_cast(part, sequence)) return {.sequence = sequence->id_in(engine)};
  PyErr_Clear();
  nb::tuple tuple;
  if (!nb::try_cast(part, tuple) || tuple.size() < 2 || tuple.size() > 3 ||
      !nb::try_cast(tuple[0], sequence) || !nb::try_cast(tuple[1], step.tokens)) {
    PyErr_Clear();
    throw UsageError(
        "a part of a step has the wrong type; allowed: a Sequence, (Sequence, tokens) or "
        "(Sequence, tokens, \"decode\" or \"prefill\")");
  }
  step.sequence = sequence->id_in(engine);
  step.mode = tuple.size() == 3 ? mode_of(tuple[2])
                                : (step.tokens == 1 ? StepMode::kDecode : StepMode::kPrefill);
  return step;
}

}  // namespace

StepLayout::StepLayout(const nb::tuple& k_parts, const nb::tuple& v_parts, const nb::tuple& q_parts,
                       const nb::tuple& out_parts)
    : k(view_of_parts(k_parts)),
      v(view_of_parts(v_parts)),
      q(view_of_parts(q_parts)),
      out(view_of_parts(out_parts)) {}

PyRuntime::PyRuntime(const Geometry& geometry, const PyConfig* config, const std::string& row_dtype,
                     const nb::object& fc_map, const nb::object& slice_dims, int64_t max_context)
    : geometry_(geometry) {
  geometry.validate();
  const Config settings = config == nullptr ? Config() : config->config();
  settings.validate_for(geometry);
  const RowDType dtype = settings.placement.row_dtype.value_or(row_dtype_of(row_dtype));
  const std::vector<int16_t> dims = choose_slice_dims(settings, geometry, fc_map, slice_dims);
  const nb::gil_scoped_release release;
  engine_ = std::make_shared<Engine>(settings, geometry, dtype, dims, max_context);
}

void PyRuntime::begin_step(const nb::list& parts) {
  std::vector<StepSequence> sequences;
  int64_t tokens = 0;
  for (nb::handle part : parts) {
    sequences.push_back(part_of(part, *engine_));
    tokens += sequences.back().tokens;
  }
  {
    const nb::gil_scoped_release release;
    engine_->begin(sequences);
  }
  step_tokens_ = tokens;
  borrowed_.clear();
}

void PyRuntime::append(int layer, nb::handle k, nb::handle v, StreamChoice stream) {
  BorrowedTensor keys = BorrowedTensor::from(engine_->device(), k, "k", false);
  BorrowedTensor values = BorrowedTensor::from(engine_->device(), v, "v", false);
  {
    const nb::gil_scoped_release release;
    engine_->append(layer, keys.const_view(), values.const_view(), stream);
  }
  if (engine_->device().unified() || stream) return;  // a stream's memory is reused in its order
  borrowed_.push_back(std::move(keys));
  borrowed_.push_back(std::move(values));
}

nb::object PyRuntime::attend(int layer, nb::handle q, nb::object out, bool lse,
                             StreamChoice stream) {
  const Device& device = engine_->device();
  const BorrowedTensor queries = BorrowedTensor::from(device, q, "q", false);
  nb::object results = with_results(
      device, geometry_, step_tokens_, std::move(out), lse, [&](TensorView to, float* sums) {
        const nb::gil_scoped_release release;
        engine_->attend(layer, queries.const_view(), to, sums, stream);
      });
  borrowed_.clear();
  return results;
}

void PyRuntime::end_step(const std::vector<int>& kept) {
  {
    const nb::gil_scoped_release release;
    engine_->end(kept);
  }
  step_tokens_ = 0;
  borrowed_.clear();
}

void PyRuntime::abort_step() {
  {
    const nb::gil_scoped_release release;
    engine_->abort();
  }
  step_tokens_ = 0;
  borrowed_.clear();
}

void PyRuntime::step_layer(int layer, const nb::tuple& k, const nb::tuple& v, const nb::tuple& q,
                           const nb::tuple& out, uintptr_t lse, StreamChoice stream) {
  const ConstTensorView keys = view_of_parts(k);
  const ConstTensorView values = view_of_parts(v);
  const bool attends = q.size() > 0;
  const ConstTensorView queries = attends ? view_of_parts(q) : TensorView();
  const TensorView result = attends ? view_of_parts(out) : TensorView();
  const nb::gil_scoped_release release;
  engine_->append(layer, keys, values, stream);
  if (attends) engine_->attend(layer, queries, result, reinterpret_cast<float*>(lse), stream);
}

void PyRuntime::step_layer_at(int layer, const StepAddresses& addresses, const StepLayout& layout,
                              StreamChoice stream) {
  const auto at = [](TensorView view, uintptr_t address) {
    view.data = reinterpret_cast<void*>(address);
    return view;
  };
  const nb::gil_scoped_release release;
  engine_->append(layer, at(layout.k, addresses.k), at(layout.v, addresses.v), stream);
  engine_->attend(layer, at(layout.q, addresses.q), at(layout.out, addresses.out),
                  reinterpret_cast<float*>(addresses.lse), stream);
}

nb::object PyRuntime::read(const PySequence& sequence, int layer, int64_t first,
                           std::optional<int64_t> tokens) const {
  const SequenceId id = sequence.id_in(*engine_);
  const int64_t count = tokens.value_or(sequence.length() - first);
  return rows_read(
      engine_->device(), geometry_, first, count,
      [&](const TensorView& k, const TensorView& v) { engine_->read(id, layer, first, k, v, {}); });
}

void PyRuntime::read_layer(const PySequence& sequence, int layer, int64_t first, const nb::tuple& k,
                           const nb::tuple& v, StreamChoice stream) const {
  const SequenceId id = sequence.id_in(*engine_);
  const TensorView keys = view_of_parts(k);
  const TensorView values = view_of_parts(v);
  const nb::gil_scoped_release release;
  engine_->read(id, layer, first, keys, values, stream);
}

SequenceId PySequence::id() const {
  if (!id_) throw UsageError("the sequence was freed; create a new one");
  return *id_;
}

SequenceId PySequence::id_in(const Engine& engine) const {
  if (engine_.get() != &engine)
    throw UsageError("the sequence belongs to another runtime; use the runtime that created it");
  return id();
}

void PySequence::free() {
  engine_->with([&](Runtime& runtime) { runtime.free(id()); });
  id_.reset();
}

int64_t PySequence::length() const {
  return engine_->with([&](const Runtime& runtime) { return runtime.length(id()); });
}

int PySequence::max_drafted() const {
  return engine_->with([&](const Runtime& runtime) { return runtime.info(id()).max_drafted; });
}

PySequence PySequence::fork(std::optional<int64_t> tokens) const {
  return {engine_, engine_->with([&](Runtime& runtime) {
            return runtime.fork(id(), tokens.value_or(runtime.length(id())));
          })};
}

void PySequence::truncate(int64_t tokens) {
  engine_->with([&](Runtime& runtime) { runtime.truncate(id(), tokens); });
}

void PySequence::reserve(int64_t tokens, int step_tokens) {
  engine_->with([&](Runtime& runtime) { runtime.reserve(id(), tokens, step_tokens); });
}

}  // namespace fasa::python
