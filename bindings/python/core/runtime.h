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

// The layout of a step's tensors without their addresses. All layers have the same one, so the
// caller describes it once.
struct StepLayout {
  // The tuples are those of view_of_parts.
  StepLayout(const nb::tuple& k, const nb::tuple& v, const nb::tuple& q, const nb::tuple& out);

  TensorView k, v, q, out;
};

struct StepAddresses {
  uintptr_t k, v, q, out;
  uintptr_t lse;  // [tokens, query_heads] f32; 0: not requested
};

class PyRuntime {
 public:
  PyRuntime(const Geometry& geometry, const PyConfig* config, const std::string& row_dtype,
            const nb::object& fc_map, const nb::object& slice_dims, int64_t max_context);

  const Geometry& geometry() const { return geometry_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }

  // A part of a step is a sequence, (sequence, tokens), or (sequence, tokens, "decode" |
  // "prefill").
  void begin_step(const nb::list& parts);
  void append(int layer, nb::handle k, nb::handle v, StreamChoice stream);
  // Writes to `out`, or returns a new float32 array. With `lse`, returns (out, lse), lse being
  // [tokens, query_heads].
  nb::object attend(int layer, nb::handle q, nb::object out, bool lse, StreamChoice stream);
  // `kept`: of each sequence of the step the tokens that stay; empty: all.
  void end_step(const std::vector<int>& kept);
  void abort_step();
  // append and attend for PyTorch tensors, passed by address (view_of_parts). The caller keeps them
  // alive until it returns. If q is empty, only appends.
  void step_layer(int layer, const nb::tuple& k, const nb::tuple& v, const nb::tuple& q,
                  const nb::tuple& out, uintptr_t lse, StreamChoice stream);
  // The same with the layout given in advance.
  void step_layer_at(int layer, const StepAddresses& addresses, const StepLayout& layout,
                     StreamChoice stream);
  // Stored keys and values from token `first` on, [tokens, kv_heads, head_dim] in float32.
  nb::object read(const PySequence& sequence, int layer, int64_t first,
                  std::optional<int64_t> tokens) const;
  void read_layer(const PySequence& sequence, int layer, int64_t first, const nb::tuple& k,
                  const nb::tuple& v, StreamChoice stream) const;

 private:
  Geometry geometry_;
  std::shared_ptr<Engine> engine_;
  int64_t step_tokens_ = 0;
  // Input tensors of the open step, kept alive because the device may not have read them yet.
  std::vector<BorrowedTensor> borrowed_;
};

// One sequence's keys and values. Freed by free() or with the object.
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
  // The same; throws UsageError if the sequence belongs to another runtime.
  SequenceId id_in(const Engine& engine) const;
  void free();
  int64_t length() const;
  int max_drafted() const;
  PySequence fork(std::optional<int64_t> tokens) const;
  void truncate(int64_t tokens);
  void reserve(int64_t tokens, int step_tokens);

 private:
  std::shared_ptr<Engine> engine_;
  std::optional<SequenceId> id_;
};

void add_runtime(nb::module_& module);

}  // namespace fasa::python
