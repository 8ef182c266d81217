/// \file
/// The C API of fasa: a tiered KV cache for any number of sequences, and attention over it.
///
/// Three APIs over one engine:
///   - sequences (fasa_runtime): fasa owns the pages, callers have sequences and steps;
///   - pages (fasa_paged): the caller owns page ids, as serving engines do;
///   - stateless (fasa_sparse_decode): one decode step over plain tensors.
///
/// Conventions, for all functions:
///   - Every call returns a status. If it fails, fasa_last_error() of the same thread gives the
///     message, and the call has changed nothing. No exception leaves the library. Null for a
///     handle, a result or a required tensor is FASA_ERROR_USAGE. Destroying null does nothing.
///   - Structs with options begin with `struct_size`: initialise them with their _INIT value. In
///     fields that a later version adds, zero means the behaviour of this version.
///   - Handles may be destroyed in any order; a runtime keeps its device alive. One thread at a
///     time may use a runtime and the objects made for it; different runtimes are independent.
///   - Tensors belong to the caller. Calls with a stream only enqueue work: the caller keeps the
///     tensors alive until the stream has passed the call, and the results are complete then. On
///     the cpu device work is complete on return.
///   - On a CUDA device, tensors lie in its memory, in managed memory or in pinned host memory; on
///     other devices, in host memory. A tensor that the device's kernels cannot reach, or whose
///     address is not aligned to its element size, is FASA_ERROR_USAGE; the message names it. Only
///     its first address is checked.
///   - Shapes are written [tokens, heads, head_dim]. Keys and queries come rotated (RoPE applied).
#ifndef FASA_FASA_H
#define FASA_FASA_H

#include <stddef.h>
#include <stdint.h>

// NOLINTBEGIN(readability-identifier-naming): C has names of its own.
#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FASA_API __attribute__((visibility("default")))
#else
#define FASA_API
#endif

#define FASA_VERSION_MAJOR 0
#define FASA_VERSION_MINOR 1
#define FASA_VERSION_PATCH 0

/// \name Status
/// @{

typedef enum fasa_status {
  FASA_OK = 0,
  FASA_ERROR_INTERNAL = 1,  ///< a bug in fasa
  FASA_ERROR_USAGE = 2,     ///< the call or the config is invalid
  FASA_ERROR_INPUT = 3,     ///< a file is missing, damaged or not supported
  FASA_ERROR_BUDGET = 4,    ///< a memory limit, or the machine's memory, is too small
  FASA_ERROR_DEVICE = 5     ///< an operation failed on the device
} fasa_status;

/// The message of this thread's last failed call; "" if none has failed. Valid until the next
/// failure. Never null.
FASA_API const char* fasa_last_error(void);

/// "usage", "budget", ...; never null.
FASA_API const char* fasa_status_name(fasa_status status);

/// The version of the loaded library, "0.1.0".
FASA_API const char* fasa_version(void);

/// @}
/// \name Config
/// @{

/// Every option of fasa (docs/configuration.md), checked.
typedef struct fasa_config fasa_config;

/// The sources of a config. Later sources win: file, toml, environment, options.
typedef struct fasa_config_sources {
  size_t struct_size;
  const char* file;            ///< path of a TOML file, or null
  const char* toml;            ///< TOML text, or null
  const char* toml_name;       ///< the name of `toml` in messages; null: "config"
  int32_t use_environment;     ///< not 0: the FASA_* variables of this process
  const char* const* options;  ///< [option_count] names: "fac_tokens" or "selection.fac_tokens"
  const char* const* values;   ///< [option_count] values as in flags: "256", "0.25", "6GiB"
  size_t option_count;
} fasa_config_sources;
#define FASA_CONFIG_SOURCES_INIT \
  { sizeof(fasa_config_sources), NULL, NULL, NULL, 0, NULL, NULL, 0 }

/// `sources` null: the defaults.
FASA_API fasa_status fasa_config_create(const fasa_config_sources* sources, fasa_config** config);
FASA_API void fasa_config_destroy(fasa_config* config);
/// The whole config, defaults included, as JSON. The text belongs to the config.
FASA_API fasa_status fasa_config_json(const fasa_config* config, const char** json);

/// @}
/// \name Devices and streams
/// @{

/// cpu, emulated, or a CUDA device, as the config's device.name and memory limits say.
typedef struct fasa_device fasa_device;
/// A queue of work on a device, in order. Functions that take one accept null: a stream of the
/// runtime's own, see fasa_synchronize().
typedef struct fasa_stream fasa_stream;

typedef struct fasa_memory_use {
  size_t struct_size;
  uint64_t used_bytes;
  uint64_t peak_bytes;
  uint64_t limit_bytes;  ///< UINT64_MAX: none
} fasa_memory_use;
#define FASA_MEMORY_USE_INIT \
  { sizeof(fasa_memory_use), 0, 0, 0 }

/// Enumerations are passed as integers; every value is checked.
typedef int32_t fasa_memory_space;
enum { FASA_MEMORY_DEVICE = 0, FASA_MEMORY_HOST = 1 };

/// `config` null: the defaults. Runtimes that share a device share its memory limits.
FASA_API fasa_status fasa_device_open(const fasa_config* config, fasa_device** device);
FASA_API void fasa_device_destroy(fasa_device* device);
/// "cpu", "emulated", "cuda:0". The text belongs to the device.
FASA_API fasa_status fasa_device_name(const fasa_device* device, const char** name);
FASA_API fasa_status fasa_device_memory(const fasa_device* device, fasa_memory_space space,
                                        fasa_memory_use* use);

FASA_API fasa_status fasa_stream_create(fasa_device* device, fasa_stream** stream);
/// Wraps a stream of the caller. On a CUDA device `native` is a cudaStream_t that outlives the
/// handle; for the default streams pass cudaStreamLegacy or cudaStreamPerThread, not null. On the
/// cpu device `native` is null, and work runs in the calling thread. A stream of another GPU, or a
/// destroyed one, is FASA_ERROR_USAGE here and in every call that takes it, where the driver can
/// tell (CUDA 12.8 and newer).
FASA_API fasa_status fasa_stream_from_native(fasa_device* device, void* native,
                                             fasa_stream** stream);
/// Waits for the stream's work and reports the work that failed.
FASA_API fasa_status fasa_stream_synchronize(fasa_stream* stream);
FASA_API void fasa_stream_destroy(fasa_stream* stream);

/// @}
/// \name Tensors and models
/// @{

typedef int32_t fasa_dtype;
enum { FASA_F32 = 0, FASA_F16 = 1, FASA_BF16 = 2 };

/// A view of a tensor in memory that the device can reach. Strides in elements; the last dimension
/// is dense (stride 1). All strides 0: contiguous.
typedef struct fasa_tensor {
  void* data;
  fasa_dtype dtype;
  int32_t ndim;  ///< 3, or 4 for fasa_sparse_decode()'s keys and values
  int64_t shape[4];
  int64_t strides[4];
} fasa_tensor;

/// The shape of a model's attention.
typedef struct fasa_geometry {
  size_t struct_size;
  int32_t layers;
  int32_t kv_heads;
  int32_t query_heads;         ///< a multiple of kv_heads
  int32_t key_dim;             ///< per head; even
  int32_t value_dim;           ///< per head; 0: as key_dim
  int32_t unrotated_dims;      ///< the last dimensions of a key, which RoPE leaves alone
  int32_t interleaved_rotary;  ///< 0: RoPE rotates dimensions (i, i + d/2), else (2i, 2i + 1)
  float scale;                 ///< factor of q.k before the softmax; 0: 1 / sqrt(key_dim)
  const int32_t* windows;      ///< [layers] tokens, 0 = none; null: none anywhere
  float score_cap;             ///< a scaled score s becomes cap * tanh(s / cap); 0: none
} fasa_geometry;
#define FASA_GEOMETRY_INIT \
  { sizeof(fasa_geometry), 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0 }

/// The frequency chunks (FCs) that the slices hold, per layer and KV head. Made by `fasa
/// calibrate`.
typedef struct fasa_fc_map fasa_fc_map;
FASA_API fasa_status fasa_fc_map_load(const char* path, fasa_fc_map** map);
FASA_API void fasa_fc_map_destroy(fasa_fc_map* map);

/// Options that every API takes when it is opened.
typedef struct fasa_options {
  size_t struct_size;
  const fasa_geometry* geometry;  ///< the whole model's; required
  const fasa_config* config;      ///< null: the defaults
  fasa_device* device;            ///< null: opened from the config
  const fasa_fc_map* fc_map;      ///< the whole model's; null: the config's, if it names one
  fasa_dtype row_dtype;           ///< stored keys and values; the config's row_dtype overrides it,
                                  ///< and allows int8 too (at least 32 dimensions a vector)
  int32_t first_kv_head;          ///< the owned KV heads, with their query heads: a
  int32_t kv_head_count;          ///< tensor-parallel rank's share. Count 0: all from the first
  int64_t max_context;            ///< tokens of the longest sequence expected, 0 = unknown
  int32_t first_layer;            ///< the owned layers: a pipeline stage's share. Calls count
  int32_t layer_count;            ///< layers from 0 within it. Count 0: all from the first
} fasa_options;
#define FASA_OPTIONS_INIT \
  { sizeof(fasa_options), NULL, NULL, NULL, NULL, FASA_BF16, 0, 0, 0, 0, 0 }

/// @}
/// \name Memory and metrics
/// @{

/// Bytes of a KV cache.
typedef struct fasa_kv_memory {
  size_t struct_size;
  uint64_t device_slices;
  uint64_t device_rows;
  uint64_t device_hot_rows;
  uint64_t device_scratch;
  uint64_t host_rows;
  uint64_t host_tables;    ///< host copies of the page tables
  uint64_t device_extra;   ///< extra hot rows: lent while device memory is free
  uint64_t device_states;  ///< layers with linear attention; 0 but for models that fasa runs
  uint64_t host_states;    ///< copies of such states, as of earlier tokens
} fasa_kv_memory;
#define FASA_KV_MEMORY_INIT \
  { sizeof(fasa_kv_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/// Counters since the last reset, over all KV heads and sequences. Units: rows, and bytes over the
/// link.
typedef struct fasa_metrics {
  size_t struct_size;
  uint64_t decode_steps;
  uint64_t protected_rows;   ///< selected rows that were sinks or recent tokens
  uint64_t hits;             ///< rows found on the device
  uint64_t misses;           ///< rows fetched on demand
  uint64_t prefetched;       ///< rows fetched ahead
  uint64_t prefetched_used;  ///< prefetched rows that were then selected
  uint64_t nan_scores;       ///< NaN scores, treated as -inf
  uint64_t miss_bytes;
  uint64_t prefetch_bytes;
  uint64_t write_back_bytes;
} fasa_metrics;
#define FASA_METRICS_INIT \
  { sizeof(fasa_metrics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/// @}
/// \name Sequences: fasa owns the pages
///
/// One step: fasa_begin_step(), then fasa_append() and fasa_attend() for every layer in order, then
/// fasa_end_step() or fasa_abort_step(). Its tensors hold the new tokens of all its sequences, in
/// the order given to fasa_begin_step(). Only fasa_begin_step() can fail for lack of memory. A step
/// may omit fasa_attend() in all layers, to load keys and values computed elsewhere.
/// @{

typedef struct fasa_runtime fasa_runtime;
/// Valid only for the runtime that made it. 0 is no sequence.
typedef uint64_t fasa_sequence;

typedef int32_t fasa_step_mode;
enum {
  FASA_DECODE = 0,  ///< one new token, or several drafted ones, selected attention
  FASA_PREFILL = 1  ///< any number, exact causal attention
};

typedef struct fasa_step_part {
  fasa_sequence sequence;
  int32_t tokens;
  fasa_step_mode mode;
} fasa_step_part;

FASA_API fasa_status fasa_runtime_create(const fasa_options* options, fasa_runtime** runtime);
FASA_API void fasa_runtime_destroy(fasa_runtime* runtime);
/// Waits for the runtime's own stream, which runs all calls whose stream was null.
FASA_API fasa_status fasa_synchronize(fasa_runtime* runtime);

FASA_API fasa_status fasa_sequence_create(fasa_runtime* runtime, fasa_sequence* sequence);
/// A new sequence that shares the first `tokens` tokens of `parent`.
FASA_API fasa_status fasa_sequence_fork(fasa_runtime* runtime, fasa_sequence parent, int64_t tokens,
                                        fasa_sequence* sequence);
/// Limits the rollback window: the sequence will be truncated or forked only at 0 or within
/// `tokens` tokens of its end. Sliding-window layers then free older rows as the sequence grows; a
/// later truncate or fork beyond the window is FASA_ERROR_USAGE. INT64_MAX: no limit. Default: 2048
/// if the model mixes sliding-window and full layers, otherwise no limit. Call it before
/// fasa_sequence_reserve().
FASA_API fasa_status fasa_sequence_set_rollback_tokens(fasa_runtime* runtime,
                                                       fasa_sequence sequence, int64_t tokens);
FASA_API fasa_status fasa_sequence_truncate(fasa_runtime* runtime, fasa_sequence sequence,
                                            int64_t tokens);
FASA_API fasa_status fasa_sequence_free(fasa_runtime* runtime, fasa_sequence sequence);
FASA_API fasa_status fasa_sequence_length(fasa_runtime* runtime, fasa_sequence sequence,
                                          int64_t* tokens);
/// The most tokens of its next decode step of which fasa_end_step() may keep a part, 1 or more.
FASA_API fasa_status fasa_sequence_max_drafted(fasa_runtime* runtime, fasa_sequence sequence,
                                               int32_t* tokens);
/// Reserves memory for `tokens` tokens in all, in steps of up to `step_tokens` new ones. Steps
/// within that cannot fail for lack of memory.
FASA_API fasa_status fasa_sequence_reserve(fasa_runtime* runtime, fasa_sequence sequence,
                                           int64_t tokens, int32_t step_tokens);

FASA_API fasa_status fasa_begin_step(fasa_runtime* runtime, const fasa_step_part* parts,
                                     size_t count);
/// k [tokens, kv_heads, key_dim], v [tokens, kv_heads, value_dim].
FASA_API fasa_status fasa_append(fasa_runtime* runtime, int32_t layer, const fasa_tensor* k,
                                 const fasa_tensor* v, fasa_stream* stream);
/// q [tokens, query_heads, key_dim] -> out [tokens, query_heads, value_dim]; log-sum-exp of the
/// scaled scores, natural, to lse [tokens, query_heads], or null. After the layer's append.
FASA_API fasa_status fasa_attend(fasa_runtime* runtime, int32_t layer, const fasa_tensor* q,
                                 const fasa_tensor* out, float* lse, fasa_stream* stream);
/// The first `kept[i]` tokens of sequence i of the step stay, 1 or more; the others leave no trace.
/// Null and 0: all stay. Where some do not, the sequence decodes at most as many tokens as
/// fasa_sequence_max_drafted() gives.
FASA_API fasa_status fasa_end_step(fasa_runtime* runtime, const int32_t* kept, size_t count);
FASA_API fasa_status fasa_abort_step(fasa_runtime* runtime);

/// Copies the stored keys and values of positions first, first + 1, ... to k [tokens, kv_heads,
/// key_dim] and v [tokens, kv_heads, value_dim]. Committed tokens only.
FASA_API fasa_status fasa_read(fasa_runtime* runtime, fasa_sequence sequence, int32_t layer,
                               int64_t first, const fasa_tensor* k, const fasa_tensor* v,
                               fasa_stream* stream);

/// The cache's memory now.
FASA_API fasa_status fasa_memory(fasa_runtime* runtime, fasa_kv_memory* memory);
/// The memory that fasa_sequence_reserve() of an empty sequence would take.
FASA_API fasa_status fasa_estimate_memory(fasa_runtime* runtime, int64_t tokens,
                                          int32_t step_tokens, fasa_kv_memory* memory);
/// `layer` -1: all. Waits for work under way.
FASA_API fasa_status fasa_read_metrics(fasa_runtime* runtime, int32_t layer, fasa_metrics* metrics);
FASA_API fasa_status fasa_reset_metrics(fasa_runtime* runtime);

/// @}
/// \name Pages: the caller owns their ids
///
/// The slot of a token is page * page_size + offset. The slots of a page are written in rising
/// order, in every layer. A write to offset 0 restarts the page, so page ids may be reused without
/// a call; a write that leaves a gap is an error. There are no steps and there is no prefetch.
///
/// The slots, tables and lengths of one call lie all in host memory, or all in the CUDA device's
/// memory. Steps are planned on the host: for device memory a call copies them on its stream and
/// waits for the copy, unless fasa_paged_read_tables() has read them. They are read before the call
/// returns.
/// @{

typedef struct fasa_paged fasa_paged;

typedef struct fasa_paged_options {
  size_t struct_size;
  int32_t page_size;      ///< tokens: 64, 128, 192 or 256; 0: 64
  int32_t max_sequences;  ///< most sequences in flight; each has hot rows. 0: 64
  int64_t num_pages;      ///< allocated at once: rows and, for 64 tokens or more, slices
} fasa_paged_options;
#define FASA_PAGED_OPTIONS_INIT \
  { sizeof(fasa_paged_options), 64, 64, 0 }

/// Page ids in the order of the sequence. Entries beyond a sequence's length are ignored.
typedef struct fasa_block_table {
  const int32_t* pages;  ///< [sequences][columns]
  int64_t sequences;
  int64_t columns;
  int64_t stride;  ///< entries from one sequence to the next; 0: columns
} fasa_block_table;

typedef struct fasa_memory_range {
  const void* data;
  size_t bytes;
} fasa_memory_range;

typedef struct fasa_page_copy {
  int64_t source;
  int64_t destination;
} fasa_page_copy;

FASA_API fasa_status fasa_paged_create(const fasa_options* options,
                                       const fasa_paged_options* paged_options, fasa_paged** paged);
/// Memory needed: `page` is the bytes of one page (num_pages is ignored); `fixed` is the upper
/// bound of all else, for max_sequences sequences of up to options.max_context tokens in steps of
/// up to `step_tokens` new tokens, all sequences together. Use it to derive num_pages from a memory
/// budget.
FASA_API fasa_status fasa_paged_sizes(const fasa_options* options,
                                      const fasa_paged_options* paged_options, int32_t step_tokens,
                                      fasa_kv_memory* page, fasa_kv_memory* fixed);
FASA_API void fasa_paged_destroy(fasa_paged* paged);
FASA_API fasa_status fasa_paged_synchronize(fasa_paged* paged);
/// Reads what all layers of a step share, after the work enqueued on `stream`, and waits for it.
/// Calls whose slots, tables or lengths lie in one of the ranges then use these copies and do not
/// wait, until the next call of this function. Count 0 drops the copies. Ranges in host memory are
/// ignored.
FASA_API fasa_status fasa_paged_read_tables(fasa_paged* paged, const fasa_memory_range* ranges,
                                            size_t count, fasa_stream* stream);
/// Writes k [tokens, kv_heads, key_dim] and v [tokens, kv_heads, value_dim] to slots
/// slot_mapping[tokens]. A negative slot stores nothing. Tokens of the same page must be adjacent.
FASA_API fasa_status fasa_append_paged(fasa_paged* paged, int32_t layer, const fasa_tensor* k,
                                       const fasa_tensor* v, const int64_t* slot_mapping,
                                       size_t slot_count, fasa_stream* stream);
/// The newest token of every sequence: q [sequences, query_heads, key_dim] over the first
/// seq_lens[i] tokens of its pages -> out [sequences, query_heads, value_dim], lse [sequences,
/// query_heads] or null.
FASA_API fasa_status fasa_attend_paged(fasa_paged* paged, int32_t layer, const fasa_tensor* q,
                                       const fasa_block_table* block_table, const int32_t* seq_lens,
                                       size_t seq_count, const fasa_tensor* out, float* lse,
                                       fasa_stream* stream);
/// Exact causal attention for the newest query_lens[i] of the first seq_lens[i] tokens of every
/// sequence; all of them must be appended before. q [sum of query_lens, query_heads, key_dim],
/// sequence after sequence -> out, lse as above. The results equal FASA_PREFILL's bit by bit,
/// however prompts are split. In a step with several sequences, append the layer's tokens of all of
/// them first: a sequence may read a page that another one writes.
FASA_API fasa_status fasa_prefill_paged(fasa_paged* paged, int32_t layer, const fasa_tensor* q,
                                        const fasa_block_table* block_table,
                                        const int32_t* seq_lens, const int32_t* query_lens,
                                        size_t seq_count, const fasa_tensor* out, float* lse,
                                        fasa_stream* stream);
/// Number of tokens that a page holds in a layer.
FASA_API fasa_status fasa_paged_held(fasa_paged* paged, int64_t page, int32_t layer,
                                     int32_t* tokens);
/// Stored keys and values of slots first, first + 1, ... of a page to k [tokens, kv_heads, key_dim]
/// and v [tokens, kv_heads, value_dim]. Waits for work under way.
FASA_API fasa_status fasa_paged_read(fasa_paged* paged, int64_t page, int32_t layer, int32_t first,
                                     const fasa_tensor* k, const fasa_tensor* v,
                                     fasa_stream* stream);
/// Copies pages, in order. Call it between steps, when every layer has the same number of tokens in
/// the source.
FASA_API fasa_status fasa_copy_pages(fasa_paged* paged, const fasa_page_copy* copies, size_t count);
FASA_API fasa_status fasa_drop_pages(fasa_paged* paged, const int64_t* pages, size_t count);
FASA_API fasa_status fasa_paged_memory(fasa_paged* paged, fasa_kv_memory* memory);
/// `layer` -1: all. A decode step is an attend of layer 0. Waits for work under way.
FASA_API fasa_status fasa_paged_read_metrics(fasa_paged* paged, int32_t layer,
                                             fasa_metrics* metrics);
FASA_API fasa_status fasa_paged_reset_metrics(fasa_paged* paged);

/// @}
/// \name Stateless
/// @{

/// One decode step of one layer over tensors in device memory: q [batch, query_heads, key_dim], k
/// [batch, kv_heads, tokens, key_dim], v [batch, kv_heads, tokens, value_dim], the newest token
/// included -> out [batch, query_heads, value_dim], lse [batch, query_heads] or null. `lengths`
/// [batch]: valid tokens of each entry, in host or device memory; null: all. The results equal
/// those of a sequence with the same tokens bit by bit. Nothing is cached: every call indexes the
/// keys. Complete on return.
FASA_API fasa_status fasa_sparse_decode(const fasa_options* options, int32_t layer,
                                        const fasa_tensor* q, const fasa_tensor* k,
                                        const fasa_tensor* v, const int64_t* lengths,
                                        const fasa_tensor* out, float* lse, fasa_stream* stream);

/// @}

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming)

#endif  // FASA_FASA_H
