/// \file
/// fasa in C++20: a KV cache in tiers for any number of sequences, and attention from it.
///
///   Runtime         fasa owns the pages; callers have sequences and steps
///   PagedRuntime    the caller owns page ids, as serving engines do
///   sparse_decode   one decode step over plain tensors; nothing is kept
///
/// All of it stands on the C interface, <fasa/fasa.h>, and needs libfasa.so alone: a program keeps
/// working with any later build of the same minor version, whatever compiler made either. Shapes,
/// units and threading are written there, once. What this adds: owners that free what they hold,
/// exceptions in place of statuses, spans, and steps that abort themselves.
#ifndef FASA_FASA_HPP
#define FASA_FASA_HPP

#include <fasa/fasa.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace fasa {
inline namespace v0 {

/// What a call that failed throws; what() is the library's own text. Nothing has changed then.
class Error : public std::runtime_error {
 public:
  Error(fasa_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  fasa_status status() const { return status_; }

 private:
  fasa_status status_;
};
/// A call or a config that asks for something impossible.
class UsageError : public Error {
  using Error::Error;
};
/// A file that is not what it should be.
class InputError : public Error {
  using Error::Error;
};
/// A memory limit, or the machine's memory, does not suffice.
class BudgetError : public Error {
  using Error::Error;
};
/// An operation failed on the device.
class DeviceError : public Error {
  using Error::Error;
};

/// Throws what `status` stands for. For calls of the C interface that this header does not have.
inline void check(fasa_status status) {
  if (status == FASA_OK) return;
  const char* const text = fasa_last_error();
  switch (status) {
    case FASA_ERROR_USAGE:
      throw UsageError(status, text);
    case FASA_ERROR_INPUT:
      throw InputError(status, text);
    case FASA_ERROR_BUDGET:
      throw BudgetError(status, text);
    case FASA_ERROR_DEVICE:
      throw DeviceError(status, text);
    default:
      throw Error(status, text);
  }
}

/// Of the library that runs, "0.1.0".
inline std::string version() { return fasa_version(); }

namespace detail {
template <auto destroy>
struct Destroy {
  template <typename Handle>
  void operator()(Handle* handle) const {
    destroy(handle);
  }
};
template <typename Handle, auto destroy>
using Owner = std::unique_ptr<Handle, Destroy<destroy>>;
}  // namespace detail

enum class DType : int32_t { kF32 = FASA_F32, kF16 = FASA_F16, kBf16 = FASA_BF16 };
enum class StepMode : int32_t { kDecode = FASA_DECODE, kPrefill = FASA_PREFILL };
enum class MemorySpace : int32_t { kDevice = FASA_MEMORY_DEVICE, kHost = FASA_MEMORY_HOST };

using KvMemory = fasa_kv_memory;
using Metrics = fasa_metrics;
using MemoryUse = fasa_memory_use;
using Sequence = fasa_sequence;

/// Where results go: a view of [tokens, heads, dim], or [batch, heads, tokens, dim], in memory that
/// the device can reach. Strides in elements, none: contiguous.
class TensorView {
 public:
  TensorView(void* data, DType dtype, std::span<const int64_t> shape,
             std::span<const int64_t> strides = {}) {
    if (shape.size() > 4 || (!strides.empty() && strides.size() != shape.size())) {
      throw UsageError(FASA_ERROR_USAGE,
                       "tensor: allowed: up to 4 dimensions, with a stride for each or for none");
    }
    c_.data = data;
    c_.dtype = static_cast<fasa_dtype>(dtype);
    c_.ndim = static_cast<int32_t>(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) c_.shape[i] = shape[i];
    for (std::size_t i = 0; i < strides.size(); ++i) c_.strides[i] = strides[i];
  }
  TensorView(float* data, int64_t tokens, int64_t heads, int64_t dim)
      : TensorView(data, DType::kF32, std::array<int64_t, 3>{tokens, heads, dim}) {}
  const fasa_tensor* c() const { return &c_; }

 private:
  fasa_tensor c_ = {};
};

/// What is read only.
class ConstTensorView {
 public:
  ConstTensorView(const TensorView& view) : view_(view) {}  // NOLINT: a view may always be read
  ConstTensorView(const void* data, DType dtype, std::span<const int64_t> shape,
                  std::span<const int64_t> strides = {})
      : view_(const_cast<void*>(data), dtype, shape, strides) {}  // the C struct has one pointer
  ConstTensorView(const float* data, int64_t tokens, int64_t heads, int64_t dim)
      : view_(const_cast<float*>(data), tokens, heads, dim) {}
  const fasa_tensor* c() const { return view_.c(); }

 private:
  TensorView view_;
};

/// A key of docs/configuration.md and its text, as flags have it: {"fac_tokens", "256"}.
struct Option {
  std::string name;
  std::string value;
};

/// Later sources win, in this order.
struct ConfigSources {
  std::string file;  ///< path of a TOML file; "": none
  std::string toml;  ///< the text of one; "": none
  bool environment = false;
  std::vector<Option> options = {};
};

/// Every option, checked.
class Config {
 public:
  Config(std::initializer_list<Option> options = {})
      : Config(from({.file = "", .toml = "", .options = options})) {}
  static Config from(const ConfigSources& sources) {
    std::vector<const char*> names;
    std::vector<const char*> texts;
    for (const Option& option : sources.options) {
      names.push_back(option.name.c_str());
      texts.push_back(option.value.c_str());
    }
    fasa_config_sources c = FASA_CONFIG_SOURCES_INIT;
    c.file = sources.file.empty() ? nullptr : sources.file.c_str();
    c.toml = sources.toml.empty() ? nullptr : sources.toml.c_str();
    c.use_environment = sources.environment ? 1 : 0;
    c.options = names.data();
    c.values = texts.data();
    c.option_count = names.size();
    fasa_config* made = nullptr;
    check(fasa_config_create(&c, &made));
    return Config(made);
  }
  /// Of every option its value.
  std::string json() const {
    const char* text = nullptr;
    check(fasa_config_json(handle_.get(), &text));
    return text;
  }
  const fasa_config* c() const { return handle_.get(); }

 private:
  explicit Config(fasa_config* made) : handle_(made) {}
  detail::Owner<fasa_config, fasa_config_destroy> handle_;
};

/// cpu, emulated or a GPU, as the config says. Runtimes on one device share its memory limits.
class Device {
 public:
  explicit Device(const Config& config = {}) {
    fasa_device* made = nullptr;
    check(fasa_device_open(config.c(), &made));
    handle_.reset(made);
  }
  std::string name() const {
    const char* text = nullptr;
    check(fasa_device_name(handle_.get(), &text));
    return text;
  }
  MemoryUse memory(MemorySpace space) const {
    MemoryUse use = FASA_MEMORY_USE_INIT;
    check(fasa_device_memory(handle_.get(), static_cast<fasa_memory_space>(space), &use));
    return use;
  }
  fasa_device* c() const { return handle_.get(); }

 private:
  detail::Owner<fasa_device, fasa_device_destroy> handle_;
};

/// A queue of work in order. Calls that are given none (null) use a stream of the runtime's own.
class Stream {
 public:
  explicit Stream(Device& device) {
    fasa_stream* made = nullptr;
    check(fasa_stream_create(device.c(), &made));
    handle_.reset(made);
  }
  /// The caller's own: `native` is a cudaStream_t on a GPU and null on the cpu device.
  static Stream adopt(Device& device, void* native) {
    fasa_stream* made = nullptr;
    check(fasa_stream_from_native(device.c(), native, &made));
    return Stream(made);
  }
  void synchronize() { check(fasa_stream_synchronize(handle_.get())); }
  fasa_stream* c() const { return handle_.get(); }

 private:
  explicit Stream(fasa_stream* made) : handle_(made) {}
  detail::Owner<fasa_stream, fasa_stream_destroy> handle_;
};

/// Which frequency chunks slices hold, made by `fasa calibrate`.
class FcMap {
 public:
  explicit FcMap(const std::string& path) {
    fasa_fc_map* made = nullptr;
    check(fasa_fc_map_load(path.c_str(), &made));
    handle_.reset(made);
  }
  const fasa_fc_map* c() const { return handle_.get(); }

 private:
  detail::Owner<fasa_fc_map, fasa_fc_map_destroy> handle_;
};

/// The shape of a model's attention; zeros as in fasa_geometry.
struct Geometry {
  int layers = 0;
  int kv_heads = 0;
  int query_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int unrotated_dims = 0;
  bool interleaved_rotary = false;
  float scale = 0;
  std::vector<int32_t> windows = {};  ///< [layers] tokens; empty: none anywhere
};

/// What every door opens with. Pointers are not owned; null as in fasa_options.
struct Options {
  Geometry geometry;
  const Config* config = nullptr;
  Device* device = nullptr;
  const FcMap* fc_map = nullptr;
  DType row_dtype = DType::kBf16;
  int first_kv_head = 0;  ///< a tensor-parallel rank's part; count 0: all from the first
  int kv_head_count = 0;
  int64_t max_context = 0;
};

namespace detail {
/// The C struct of some Options, which outlive it.
class COptions {
 public:
  explicit COptions(const Options& from) {
    const Geometry& shape = from.geometry;
    if (!shape.windows.empty() && shape.windows.size() != static_cast<std::size_t>(shape.layers)) {
      throw UsageError(FASA_ERROR_USAGE, "windows: allowed: one for each layer, or none");
    }
    geometry_.layers = shape.layers;
    geometry_.kv_heads = shape.kv_heads;
    geometry_.query_heads = shape.query_heads;
    geometry_.key_dim = shape.key_dim;
    geometry_.value_dim = shape.value_dim;
    geometry_.unrotated_dims = shape.unrotated_dims;
    geometry_.interleaved_rotary = shape.interleaved_rotary ? 1 : 0;
    geometry_.scale = shape.scale;
    geometry_.windows = shape.windows.empty() ? nullptr : shape.windows.data();
    options_.geometry = &geometry_;
    options_.config = from.config == nullptr ? nullptr : from.config->c();
    options_.device = from.device == nullptr ? nullptr : from.device->c();
    options_.fc_map = from.fc_map == nullptr ? nullptr : from.fc_map->c();
    options_.row_dtype = static_cast<fasa_dtype>(from.row_dtype);
    options_.first_kv_head = from.first_kv_head;
    options_.kv_head_count = from.kv_head_count;
    options_.max_context = from.max_context;
  }
  COptions(const COptions&) = delete;  // one part refers to another
  COptions& operator=(const COptions&) = delete;
  const fasa_options* get() const { return &options_; }

 private:
  fasa_geometry geometry_ = FASA_GEOMETRY_INIT;
  fasa_options options_ = FASA_OPTIONS_INIT;
};

inline fasa_stream* c_stream(Stream* stream) { return stream == nullptr ? nullptr : stream->c(); }
}  // namespace detail

struct StepPart {
  Sequence sequence = 0;
  int tokens = 1;
  StepMode mode = StepMode::kDecode;
};

class Runtime {
 public:
  explicit Runtime(const Options& options) {
    fasa_runtime* made = nullptr;
    check(fasa_runtime_create(detail::COptions(options).get(), &made));
    handle_.reset(made);
  }

  Sequence create() {
    Sequence made = 0;
    check(fasa_sequence_create(c(), &made));
    return made;
  }
  /// A new sequence that shares the first `tokens` tokens.
  Sequence fork(Sequence parent, int64_t tokens) {
    Sequence made = 0;
    check(fasa_sequence_fork(c(), parent, tokens, &made));
    return made;
  }
  void truncate(Sequence sequence, int64_t tokens) {
    check(fasa_sequence_truncate(c(), sequence, tokens));
  }
  void free(Sequence sequence) { check(fasa_sequence_free(c(), sequence)); }
  int64_t length(Sequence sequence) const {
    int64_t tokens = 0;
    check(fasa_sequence_length(c(), sequence, &tokens));
    return tokens;
  }
  /// Memory for `tokens` tokens in all, in steps of up to `step_tokens`: no later step fails for it.
  void reserve(Sequence sequence, int64_t tokens, int step_tokens) {
    check(fasa_sequence_reserve(c(), sequence, tokens, step_tokens));
  }

  /// class Step does these three.
  void begin_step(std::span<const StepPart> parts) {
    std::vector<fasa_step_part> c_parts;
    for (const StepPart& part : parts) {
      c_parts.push_back({part.sequence, part.tokens, static_cast<fasa_step_mode>(part.mode)});
    }
    check(fasa_begin_step(c(), c_parts.data(), c_parts.size()));
  }
  void end_step() { check(fasa_end_step(c())); }
  void abort_step() { check(fasa_abort_step(c())); }

  void append(int layer, const ConstTensorView& k, const ConstTensorView& v,
              Stream* stream = nullptr) {
    check(fasa_append(c(), layer, k.c(), v.c(), detail::c_stream(stream)));
  }
  void attend(int layer, const ConstTensorView& q, const TensorView& out, float* lse = nullptr,
              Stream* stream = nullptr) {
    check(fasa_attend(c(), layer, q.c(), out.c(), lse, detail::c_stream(stream)));
  }
  /// Waits for all calls that were given no stream.
  void synchronize() { check(fasa_synchronize(c())); }
  /// Stored keys and values of positions first, first + 1, ...
  void read(Sequence sequence, int layer, int64_t first, const TensorView& k, const TensorView& v,
            Stream* stream = nullptr) {
    check(fasa_read(c(), sequence, layer, first, k.c(), v.c(), detail::c_stream(stream)));
  }

  KvMemory memory() const {
    KvMemory memory = FASA_KV_MEMORY_INIT;
    check(fasa_memory(c(), &memory));
    return memory;
  }
  /// What reserve() of an empty sequence would take.
  KvMemory predict(int64_t tokens, int step_tokens) const {
    KvMemory memory = FASA_KV_MEMORY_INIT;
    check(fasa_predict(c(), tokens, step_tokens, &memory));
    return memory;
  }
  /// `layer` -1: all. Waits for work under way.
  Metrics metrics(int layer = -1) {
    Metrics metrics = FASA_METRICS_INIT;
    check(fasa_read_metrics(c(), layer, &metrics));
    return metrics;
  }
  void reset_metrics() { check(fasa_reset_metrics(c())); }
  fasa_runtime* c() const { return handle_.get(); }

 private:
  detail::Owner<fasa_runtime, fasa_runtime_destroy> handle_;
};

/// A step that is open. One that goes before end() aborts: its sequences are as they were.
class Step {
 public:
  Step(Runtime& runtime, std::span<const StepPart> parts) : runtime_(runtime) {
    runtime.begin_step(parts);
  }
  Step(Runtime& runtime, StepPart part) : Step(runtime, std::span<const StepPart>(&part, 1)) {}
  Step(const Step&) = delete;  // there is one step at a time
  Step& operator=(const Step&) = delete;
  ~Step() {
    if (open_) fasa_abort_step(runtime_.c());
  }
  void end() {
    runtime_.end_step();
    open_ = false;
  }

 private:
  Runtime& runtime_;
  bool open_ = true;
};

/// Page ids in the order of each sequence, [sequences][columns]; entries beyond a length mean nothing.
struct BlockTable {
  const int32_t* pages = nullptr;
  int64_t sequences = 0;
  int64_t columns = 0;
  int64_t stride = 0;  ///< 0: columns
};

class PagedRuntime {
 public:
  struct Pages {
    int size = 64;  ///< tokens: 16, 32, 64, 128, 192 or 256
    int64_t count = 0;
    int max_sequences = 64;  ///< whose hot rows are kept
  };

  PagedRuntime(const Options& options, const Pages& pages) {
    fasa_paged_options paged = FASA_PAGED_OPTIONS_INIT;
    paged.page_size = pages.size;
    paged.num_pages = pages.count;
    paged.max_sequences = pages.max_sequences;
    fasa_paged* made = nullptr;
    check(fasa_paged_create(detail::COptions(options).get(), &paged, &made));
    handle_.reset(made);
  }

  /// Token i to slot slots[i] = page * page size + offset; a negative slot stores nothing.
  void append(int layer, const ConstTensorView& k, const ConstTensorView& v,
              std::span<const int64_t> slots, Stream* stream = nullptr) {
    check(fasa_append_paged(c(), layer, k.c(), v.c(), slots.data(), slots.size(),
                            detail::c_stream(stream)));
  }
  /// The newest token of every sequence attends over the first lengths[i] tokens of its pages.
  void attend(int layer, const ConstTensorView& q, const BlockTable& table,
              std::span<const int32_t> lengths, const TensorView& out, float* lse = nullptr,
              Stream* stream = nullptr) {
    const fasa_block_table c_table = {table.pages, table.sequences, table.columns, table.stride};
    check(fasa_attend_paged(c(), layer, q.c(), &c_table, lengths.data(), lengths.size(), out.c(),
                            lse, detail::c_stream(stream)));
  }
  /// Destinations become their sources' equals, in order. Between steps.
  void copy(std::span<const fasa_page_copy> copies) {
    check(fasa_copy_pages(c(), copies.data(), copies.size()));
  }
  void drop(std::span<const int64_t> pages) {
    check(fasa_drop_pages(c(), pages.data(), pages.size()));
  }
  void synchronize() { check(fasa_paged_synchronize(c())); }

  KvMemory memory() const {
    KvMemory memory = FASA_KV_MEMORY_INIT;
    check(fasa_paged_memory(c(), &memory));
    return memory;
  }
  Metrics metrics(int layer = -1) {
    Metrics metrics = FASA_METRICS_INIT;
    check(fasa_paged_read_metrics(c(), layer, &metrics));
    return metrics;
  }
  void reset_metrics() { check(fasa_paged_reset_metrics(c())); }
  fasa_paged* c() const { return handle_.get(); }

 private:
  detail::Owner<fasa_paged, fasa_paged_destroy> handle_;
};

/// One decode step of one layer: q [batch, query_heads, key_dim], k and v [batch, kv_heads, tokens,
/// dim] -> out [batch, query_heads, value_dim]. `lengths` [batch], or empty: all tokens count.
inline void sparse_decode(const Options& options, int layer, const ConstTensorView& q,
                          const ConstTensorView& k, const ConstTensorView& v,
                          std::span<const int64_t> lengths, const TensorView& out,
                          float* lse = nullptr, Stream* stream = nullptr) {
  check(fasa_sparse_decode(detail::COptions(options).get(), layer, q.c(), k.c(), v.c(),
                           lengths.empty() ? nullptr : lengths.data(), out.c(), lse,
                           detail::c_stream(stream)));
}

}  // namespace v0
}  // namespace fasa

#endif  // FASA_FASA_HPP
