// The sequences API, and the stateless one.
#include <fmt/format.h>

#include <atomic>
#include <vector>

#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "bindings/c/status.h"

namespace fasa::c {
namespace {

// A sequence handle holds its runtime's serial number above its id, so a runtime detects handles of
// another.
constexpr int kIdBits = 40;

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

fasa_sequence sequence_of(const fasa_runtime& runtime, SequenceId id) {
  return runtime.serial << kIdBits | index_of(id);
}

SequenceId id_of(const fasa_runtime& runtime, fasa_sequence sequence) {
  const uint64_t serial = sequence >> kIdBits;
  const uint64_t id = sequence & ((uint64_t{1} << kIdBits) - 1);
  if (serial != runtime.serial) {
    throw UsageError(serial == 0 ? fmt::format("sequence {} was never created", sequence)
                                 : fmt::format("sequence {} belongs to another runtime", id));
  }
  return SequenceId{id};
}

StepMode mode_of(fasa_step_mode mode) {
  if (mode == FASA_DECODE) return StepMode::kDecode;
  if (mode == FASA_PREFILL) return StepMode::kPrefill;
  throw UsageError(
      fmt::format("mode = {}: allowed: FASA_DECODE, FASA_PREFILL", static_cast<int>(mode)));
}

// A failed stream runs nothing more: later calls get a new one.
void synchronize_own_stream(fasa_runtime& runtime) {
  try {
    runtime.device->synchronize(runtime.stream.view());
  } catch (const DeviceError&) {
    Stream fresh = runtime.device->create_stream(StreamPriority::kNormal, "compute");
    runtime.failed.push_back(std::move(runtime.stream));
    runtime.stream = std::move(fresh);
    throw;
  }
}

StreamView stream_for(const fasa_runtime& runtime, const fasa_stream* stream) {
  return stream_of(stream, runtime.device, runtime.stream);
}

}  // namespace
}  // namespace fasa::c

using fasa::c::guarded;
using fasa::c::id_of;
using fasa::c::required;
using fasa::c::stream_for;
using fasa::c::sums_at;
using fasa::c::view_of;

fasa_status fasa_runtime_create(const fasa_options* options, fasa_runtime** runtime) {
  return guarded([&] {
    fasa_runtime*& result = required(runtime, "runtime");
    fasa::c::Opening from = fasa::c::opening_of(options);
    fasa::Stream stream = from.device->create_stream(fasa::StreamPriority::kNormal, "compute");
    result = new fasa_runtime{from.device,
                              std::move(stream),
                              {},
                              fasa::c::next_serial(),
                              {*from.device, from.config, from.geometry, from.row_dtype,
                               from.slice_dims, from.max_context}};
  });
}

void fasa_runtime_destroy(fasa_runtime* runtime) { delete runtime; }

fasa_status fasa_synchronize(fasa_runtime* runtime) {
  return guarded([&] { fasa::c::synchronize_own_stream(required(runtime, "runtime")); });
}

fasa_status fasa_sequence_create(fasa_runtime* runtime, fasa_sequence* sequence) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    fasa_sequence& result = required(sequence, "sequence");
    result = fasa::c::sequence_of(of, of.runtime.create());
  });
}

fasa_status fasa_sequence_fork(fasa_runtime* runtime, fasa_sequence parent, int64_t tokens,
                               fasa_sequence* sequence) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    fasa_sequence& result = required(sequence, "sequence");
    result = fasa::c::sequence_of(of, of.runtime.fork(id_of(of, parent), tokens));
  });
}

fasa_status fasa_sequence_set_rollback_tokens(fasa_runtime* runtime, fasa_sequence sequence,
                                              int64_t tokens) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    of.runtime.set_rollback_tokens(id_of(of, sequence), tokens);
  });
}

fasa_status fasa_sequence_truncate(fasa_runtime* runtime, fasa_sequence sequence, int64_t tokens) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    of.runtime.truncate(id_of(of, sequence), tokens);
  });
}

fasa_status fasa_sequence_free(fasa_runtime* runtime, fasa_sequence sequence) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    of.runtime.free(id_of(of, sequence));
  });
}

fasa_status fasa_sequence_length(fasa_runtime* runtime, fasa_sequence sequence, int64_t* tokens) {
  return guarded([&] {
    const fasa_runtime& of = required(runtime, "runtime");
    required(tokens, "tokens") = of.runtime.length(id_of(of, sequence));
  });
}

fasa_status fasa_sequence_max_drafted(fasa_runtime* runtime, fasa_sequence sequence,
                                      int32_t* tokens) {
  return guarded([&] {
    const fasa_runtime& of = required(runtime, "runtime");
    required(tokens, "tokens") = of.runtime.info(id_of(of, sequence)).max_drafted;
  });
}

fasa_status fasa_sequence_reserve(fasa_runtime* runtime, fasa_sequence sequence, int64_t tokens,
                                  int32_t step_tokens) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    of.runtime.reserve(id_of(of, sequence), tokens, step_tokens);
  });
}

fasa_status fasa_begin_step(fasa_runtime* runtime, const fasa_step_part* parts, size_t count) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    if (count > 0) required(parts, "parts");
    std::vector<fasa::StepSequence> step;
    for (size_t i = 0; i < count; ++i) {
      step.push_back(
          {id_of(of, parts[i].sequence), parts[i].tokens, fasa::c::mode_of(parts[i].mode)});
    }
    of.runtime.begin_step(step);
  });
}

fasa_status fasa_append(fasa_runtime* runtime, int32_t layer, const fasa_tensor* k,
                        const fasa_tensor* v, fasa_stream* stream) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    fasa::Device& device = *of.device;
    of.runtime.append(layer, view_of(device, k, "k"), view_of(device, v, "v"),
                      stream_for(of, stream));
  });
}

fasa_status fasa_attend(fasa_runtime* runtime, int32_t layer, const fasa_tensor* q,
                        const fasa_tensor* out, float* lse, fasa_stream* stream) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    fasa::Device& device = *of.device;
    of.runtime.attend(layer, view_of(device, q, "q"), view_of(device, out, "out"),
                      sums_at(device, lse), stream_for(of, stream));
  });
}

fasa_status fasa_end_step(fasa_runtime* runtime, const int32_t* kept, size_t count) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    if (count > 0) required(kept, "kept");
    of.runtime.end_step({kept, count});
  });
}

fasa_status fasa_abort_step(fasa_runtime* runtime) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    of.runtime.abort_step();
    try {
      fasa::c::synchronize_own_stream(of);
    } catch (const fasa::DeviceError&) {
      // The step has failed; its sequences report it.
    }
  });
}

fasa_status fasa_read(fasa_runtime* runtime, fasa_sequence sequence, int32_t layer, int64_t first,
                      const fasa_tensor* k, const fasa_tensor* v, fasa_stream* stream) {
  return guarded([&] {
    fasa_runtime& of = required(runtime, "runtime");
    fasa::Device& device = *of.device;
    of.runtime.read(id_of(of, sequence), layer, first, view_of(device, k, "k"),
                    view_of(device, v, "v"), stream_for(of, stream));
  });
}

fasa_status fasa_memory(fasa_runtime* runtime, fasa_kv_memory* memory) {
  return guarded(
      [&] { fasa::c::give_memory(required(runtime, "runtime").runtime.memory(), memory); });
}

fasa_status fasa_estimate_memory(fasa_runtime* runtime, int64_t tokens, int32_t step_tokens,
                                 fasa_kv_memory* memory) {
  return guarded([&] {
    const fasa_runtime& of = required(runtime, "runtime");
    if (tokens < 0 || tokens > INT32_MAX || step_tokens < 1) {
      throw fasa::UsageError(
          fmt::format("estimate_memory: {} tokens in steps of {}; allowed: 0 to {} tokens, in "
                      "steps of 1 or more",
                      tokens, step_tokens, INT32_MAX));
    }
    fasa::c::give_memory(of.runtime.estimate_memory(tokens, step_tokens), memory);
  });
}

fasa_status fasa_read_metrics(fasa_runtime* runtime, int32_t layer, fasa_metrics* metrics) {
  return guarded([&] {
    fasa::c::give_metrics(required(runtime, "runtime").runtime.metrics(), layer, metrics);
  });
}

fasa_status fasa_reset_metrics(fasa_runtime* runtime) {
  return guarded([&] { required(runtime, "runtime").runtime.reset_metrics(); });
}

fasa_status fasa_sparse_decode(const fasa_options* options, int32_t layer, const fasa_tensor* q,
                               const fasa_tensor* k, const fasa_tensor* v, const int64_t* lengths,
                               const fasa_tensor* out, float* lse, fasa_stream* stream) {
  return guarded([&] {
    const fasa::c::Opening from = fasa::c::opening_of(options);
    fasa::Stream own;
    if (stream == nullptr) {
      own = from.device->create_stream(fasa::StreamPriority::kNormal, "compute");
    }
    const fasa::StreamView on = fasa::c::stream_of(stream, from.device, own);
    fasa::SparseDecode call;
    call.layer = layer;
    fasa::Device& device = *from.device;
    call.q = view_of(device, q, "q");
    call.k = fasa::c::batch_view_of(device, k, "k");
    call.v = fasa::c::batch_view_of(device, v, "v");
    call.out = view_of(device, out, "out");
    call.lse = sums_at(device, lse);
    fasa::TableReader tables(device);
    if (lengths != nullptr) {
      const auto count = static_cast<size_t>(call.q.tokens);
      fasa::CallerArray array{"lengths", lengths, count * sizeof(int64_t), alignof(int64_t)};
      tables.read({&array, 1}, on);
      call.lengths = {static_cast<const int64_t*>(array.data), count};
    }
    fasa::sparse_decode(*from.device, from.config, from.geometry, from.row_dtype, from.slice_dims,
                        call, on);
    from.device->synchronize(on);
  });
}
