// fasa.Geometry, fasa.Runtime and fasa.Sequence.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/core/config.h"
#include "bindings/python/core/engine.h"
#include "bindings/python/core/tensors.h"

namespace fasa::python {

class PySequence;

// How the tensors of a layer lie in a step, addresses apart: every layer's alike, so PyTorch's side
// describes them once.
struct StepLayout {
  // As view_of_parts takes them.
  StepLayout(const nb::tuple& k, const nb::tuple& v, const nb::tuple& q, const nb::tuple& out);

  TensorView k, v, q, out;
};

struct StepAddresses {
  uintptr_t k, v, q, out;
  uintptr_t lse;  // [tokens, query_heads] f32; 0: not wanted
};

class PyRuntime {
 public:
  PyRuntime(const Geometry& geometry, const PyConfig* config, const std::string& row_dtype,
            const nb::object& fc_map, const nb::object& slice_dims, int64_t max_context);

  const Geometry& geometry() const { return geometry_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }

  // Parts of a step: a sequence, or (sequence, tokens), or (sequence, tokens, "decode" |
  // "prefill").
  void begin_step(const nb::list& parts);
  void append(int layer, nb::handle k, nb::handle v, StreamChoice stream);
  // `out`: written, else a new float32 array. With `lse`, the pair of it and [tokens, query_heads].
  nb::object attend(int layer, nb::handle q, nb::object out, bool lse, StreamChoice stream);
  void end_step();
  void abort_step();
  // append and attend of tensors by address (view_of_parts), for PyTorch. The caller keeps them
  // alive until it returns. q empty: append alone.
  void step_layer(int layer, const nb::tuple& k, const nb::tuple& v, const nb::tuple& q,
                  const nb::tuple& out, uintptr_t lse, StreamChoice stream);
  // The same where `layout` has all but the addresses.
  void step_layer_at(int layer, const StepAddresses& addresses, const StepLayout& layout,
                     StreamChoice stream);
  // [tokens, kv_heads, head_dim] of stored keys and values in float32, from `first` on.
  nb::object read(const PySequence& sequence, int layer, int64_t first,
                  std::optional<int64_t> tokens) const;
  void read_layer(const PySequence& sequence, int layer, int64_t first, const nb::tuple& k,
                  const nb::tuple& v, StreamChoice stream) const;

 private:
  Geometry geometry_;
  std::shared_ptr<Engine> engine_;
  int64_t step_tokens_ = 0;
  // What a step was given to read: the device may not have done so yet.
  std::vector<BorrowedTensor> borrowed_;
};

// One sequence's keys and values. Freed with the object at the latest.
class PySequence {
 public:
  PySequence(std::shared_ptr<Engine> engine, SequenceId id) : engine_(std::move(engine)), id_(id) {}
  PySequence(PySequence&& other) noexcept
      : engine_(std::move(other.engine_)), id_(std::exchange(other.id_, std::nullopt)) {}
  PySequence& operator=(PySequence&&) = delete;
  ~PySequence() {
    if (id_) engine_->release(*id_);
  }

  // Throws UsageError after free().
  SequenceId id() const;
  // The same, for a runtime that must be this sequence's own.
  SequenceId id_in(const Engine& engine) const;
  void free();
  int64_t length() const;
  PySequence fork(std::optional<int64_t> tokens) const;
  void truncate(int64_t tokens);
  void reserve(int64_t tokens, int step_tokens);

 private:
  std::shared_ptr<Engine> engine_;
  std::optional<SequenceId> id_;
};

void add_runtime(nb::module_& module);

}  // namespace fasa::python
