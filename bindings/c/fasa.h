/// \file
/// fasa in C: a KV cache in tiers for any number of sequences, and attention from it.
///
/// Three APIs over one engine:
///   - sequences (fasa_runtime): fasa owns the pages, callers have sequences and steps;
///   - pages (fasa_paged): the caller owns page ids, as serving engines do;
///   - stateless (fasa_sparse_decode): one decode step over plain tensors.
///
/// Conventions, for all functions:
///   - Every call returns a status; what went wrong is said by fasa_last_error() of the same
///   thread,
///     in the words of the `fasa` command. A call that failed has changed nothing. No exception
///     leaves the library. Null where a handle, a result or a required tensor is expected is
///     FASA_ERROR_USAGE. Destroying null does nothing.
///   - Structs with options begin with `struct_size`: begin from their _INIT value. Fields that a
///     later version adds have a zero that means what this one does.
///   - Handles may be destroyed in any order; a runtime keeps the device that it runs on. One
///   thread
///     at a time may use a runtime and what was made for it; different runtimes are independent.
///   - Tensors belong to the caller. Calls with a stream only enqueue: tensors must stay alive, and
///     results are there, when the stream has passed the call. On the cpu device that is on return.
///   - On a CUDA device tensors lie in its memory, in managed or in pinned host memory; one that
///   its
///     kernels do not reach, or whose address is no multiple of an element's bytes, is
///     FASA_ERROR_USAGE and named. Only where it begins is looked at. On others they lie in host
///     memory.
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
  FASA_ERROR_USAGE = 2,     ///< a call or config that asks for something impossible
  FASA_ERROR_INPUT = 3,     ///< a file that is not what it should be
  FASA_ERROR_BUDGET = 4,    ///< a memory limit, or the machine's memory, does not suffice
  FASA_ERROR_DEVICE = 5     ///< an operation failed on the device
} fasa_status;

/// What the last call of this thread that failed had to say; "" if none did. Valid until the next
/// one fails. Never null.
FASA_API const char* fasa_last_error(void);

/// "usage", "budget", ...; never null.
FASA_API const char* fasa_status_name(fasa_status status);

/// Of the library that runs, "0.1.0".
FASA_API const char* fasa_version(void);

/// @}
/// \name Config
/// @{

/// Every option of fasa (docs/configuration.md), checked.
typedef struct fasa_config fasa_config;

/// Where a config comes from. Later ones win: file, toml, environment, options.
typedef struct fasa_config_sources {
  size_t struct_size;
  const char* file;            ///< path of a TOML file, or null
  const char* toml;            ///< the text of one, or null
  const char* toml_name;       ///< stands for its file in messages; null: "config"
  int32_t use_environment;     ///< not 0: the FASA_* variables of this process
  const char* const* options;  ///< [option_count] names: "fac_tokens" or "selection.fac_tokens"
  const char* const* values;   ///< [option_count] texts as flags have them: "256", "0.25", "6GiB"
  size_t option_count;
} fasa_config_sources;
#define FASA_CONFIG_SOURCES_INIT \
  { sizeof(fasa_config_sources), NULL, NULL, NULL, 0, NULL, NULL, 0 }

/// `sources` null: the defaults.
FASA_API fasa_status fasa_config_create(const fasa_config_sources* sources, fasa_config** config);
FASA_API void fasa_config_destroy(fasa_config* config);
/// The whole config as JSON, of every option its value. The text belongs to the config.
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

/// Integers, as all choices that a caller hands over: any value may come, and is checked.
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
/// The caller's own: on a CUDA device `native` is a cudaStream_t, which outlives the handle and is
/// not null (cudaStreamLegacy and cudaStreamPerThread name the default ones). On the cpu device
/// there is none: null, work runs in the calling thread. One of another GPU, or that was destroyed,
/// is FASA_ERROR_USAGE, here and in every call that takes it, as far as the driver notices (CUDA
/// 12.8 and newer).
FASA_API fasa_status fasa_stream_from_native(fasa_device* device, void* native,
                                             fasa_stream** stream);
/// Waits for the stream's work, reports what of it failed.
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
  int32_t key_dim;             ///< of a head; even
  int32_t value_dim;           ///< of a head; 0: as key_dim
  int32_t unrotated_dims;      ///< the last dimensions of a key, which RoPE leaves alone
  int32_t interleaved_rotary;  ///< 0: RoPE rotates dimensions (i, i + d/2), else (2i, 2i + 1)
  float scale;                 ///< of q.k before the softmax; 0: 1 / sqrt(key_dim)
  const int32_t* windows;      ///< [layers] tokens, 0 = none; null: none anywhere
  float score_cap;             ///< a scaled score s becomes cap * tanh(s / cap); 0: none
} fasa_geometry;
#define FASA_GEOMETRY_INIT \
  { sizeof(fasa_geometry), 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0 }

/// Which frequency chunks slices hold, made by `fasa calibrate`.
typedef struct fasa_fc_map fasa_fc_map;
FASA_API fasa_status fasa_fc_map_load(const char* path, fasa_fc_map** map);
FASA_API void fasa_fc_map_destroy(fasa_fc_map* map);

/// Options that every API takes when it is opened.
typedef struct fasa_options {
  size_t struct_size;
  const fasa_geometry* geometry;  ///< of the whole model; required
  const fasa_config* config;      ///< null: the defaults
  fasa_device* device;            ///< null: opened as the config says
  const fasa_fc_map* fc_map;      ///< of the whole model; null: the config's, if it names one
  fasa_dtype row_dtype;           ///< of stored keys and values; the config's row_dtype goes first,
                                  ///< and has int8 too: codes, at least 32 dimensions a vector
  int32_t first_kv_head;          ///< the part that is owned, with its query heads: a tensor-
  int32_t kv_head_count;          ///< parallel rank's share. Count 0: all from the first
  int64_t max_context;            ///< tokens of the longest sequence expected, 0 = unknown
  int32_t first_layer;  ///< the part that is owned, as a pipeline stage has it: layers are
  int32_t layer_count;  ///< counted from 0 in it. Count 0: all from the first
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
  uint64_t host_tables;  ///< the host's halves of the page tables
} fasa_kv_memory;
#define FASA_KV_MEMORY_INIT \
  { sizeof(fasa_kv_memory), 0, 0, 0, 0, 0, 0 }

/// Since the last reset, over all KV heads and sequences. Rows, then bytes over the link.
typedef struct fasa_metrics {
  size_t struct_size;
  uint64_t decode_steps;
  uint64_t protected_rows;   ///< set entries that were sinks or recent tokens
  uint64_t hits;             ///< found on the device
  uint64_t misses;           ///< fetched when they were asked for
  uint64_t prefetched;       ///< fetched ahead
  uint64_t prefetched_used;  ///< of them, those that a set then had
  uint64_t nan_scores;       ///< taken as -inf
  uint64_t miss_bytes;
  uint64_t prefetch_bytes;
  uint64_t write_back_bytes;
} fasa_metrics;
#define FASA_METRICS_INIT \
  { sizeof(fasa_metrics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/// @}
/// \name Sequences: fasa owns the pages
///
/// A step: fasa_begin_step(), then for every layer in order fasa_append() and fasa_attend(), then
/// fasa_end_step() or fasa_abort_step(). Its tensors hold the new tokens of all its sequences, in
/// the order of fasa_begin_step(), which is the only call of a step that fails for memory. A step
/// may leave fasa_attend() out in all layers: to load what was computed elsewhere.
/// @{

typedef struct fasa_runtime fasa_runtime;
/// Known to the runtime that made it, and to no other. 0 is none.
typedef uint64_t fasa_sequence;

typedef int32_t fasa_step_mode;
enum {
  FASA_DECODE = 0,  ///< one new token, selected attention
  FASA_PREFILL = 1  ///< any number, exact causal attention
};

typedef struct fasa_step_part {
  fasa_sequence sequence;
  int32_t tokens;
  fasa_step_mode mode;
} fasa_step_part;

FASA_API fasa_status fasa_runtime_create(const fasa_options* options, fasa_runtime** runtime);
FASA_API void fasa_runtime_destroy(fasa_runtime* runtime);
/// Waits for the work of the runtime's own stream: of all calls whose stream was null.
FASA_API fasa_status fasa_synchronize(fasa_runtime* runtime);

FASA_API fasa_status fasa_sequence_create(fasa_runtime* runtime, fasa_sequence* sequence);
/// A new sequence that shares the first `tokens` tokens of `parent`.
FASA_API fasa_status fasa_sequence_fork(fasa_runtime* runtime, fasa_sequence parent, int64_t tokens,
                                        fasa_sequence* sequence);
/// Says that the sequence will be truncated and forked at most `tokens` tokens from its end, or at
/// 0: rows of layers that see a window only are given back behind that while it grows, and a later
/// truncate or fork there is FASA_ERROR_USAGE. INT64_MAX: anywhere. Without it: 2048 where some
/// layers see a window and others everything, else anywhere. Before fasa_sequence_reserve.
FASA_API fasa_status fasa_sequence_set_rollback_tokens(fasa_runtime* runtime,
                                                       fasa_sequence sequence, int64_t tokens);
FASA_API fasa_status fasa_sequence_truncate(fasa_runtime* runtime, fasa_sequence sequence,
                                            int64_t tokens);
FASA_API fasa_status fasa_sequence_free(fasa_runtime* runtime, fasa_sequence sequence);
FASA_API fasa_status fasa_sequence_length(fasa_runtime* runtime, fasa_sequence sequence,
                                          int64_t* tokens);
/// Memory for `tokens` tokens in all, in steps of up to `step_tokens` new ones, so that no later
/// step can fail for memory.
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
FASA_API fasa_status fasa_end_step(fasa_runtime* runtime);
FASA_API fasa_status fasa_abort_step(fasa_runtime* runtime);

/// Stored keys and values of positions first, first + 1, ... to k [tokens, kv_heads, key_dim] and
/// v [tokens, kv_heads, value_dim]. Committed tokens only.
FASA_API fasa_status fasa_read(fasa_runtime* runtime, fasa_sequence sequence, int32_t layer,
                               int64_t first, const fasa_tensor* k, const fasa_tensor* v,
                               fasa_stream* stream);

/// What the cache takes now.
FASA_API fasa_status fasa_memory(fasa_runtime* runtime, fasa_kv_memory* memory);
/// What fasa_sequence_reserve() of an empty sequence would take.
FASA_API fasa_status fasa_estimate_memory(fasa_runtime* runtime, int64_t tokens,
                                          int32_t step_tokens, fasa_kv_memory* memory);
/// `layer` -1: all. Waits for work under way.
FASA_API fasa_status fasa_read_metrics(fasa_runtime* runtime, int32_t layer, fasa_metrics* metrics);
FASA_API fasa_status fasa_reset_metrics(fasa_runtime* runtime);

/// @}
/// \name Pages: the caller owns their ids
///
/// The slot of a token is page * page_size + offset. Slots of a page are written in rising order,
/// in every layer; a write to offset 0 starts the page anew, so ids may be used again without a
/// word; a write past a gap is an error. There are no steps, and nothing is prefetched.
///
/// Slots, tables and lengths lie in host memory, or all of a call's in the CUDA device's: a step is
/// planned on the host, so there a call copies them on its stream and waits for that, unless
/// fasa_paged_read_tables() has read them. They are read before a call returns.
/// @{

typedef struct fasa_paged fasa_paged;

typedef struct fasa_paged_options {
  size_t struct_size;
  int32_t page_size;      ///< tokens: 16, 32, 64, 128, 192 or 256; 0: 64
  int32_t max_sequences;  ///< whose hot rows are kept: the most in flight; 0: 64
  int64_t num_pages;      ///< whose rows, and from 64 tokens on slices, are taken at once
} fasa_paged_options;
#define FASA_PAGED_OPTIONS_INIT \
  { sizeof(fasa_paged_options), 64, 64, 0 }

/// Page ids in the order of the sequence. Entries beyond a sequence's length mean nothing.
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
/// What it would take: `page` bytes for every page, whatever num_pages says, and `fixed` at most
/// for all else, with max_sequences sequences of up to options.max_context tokens in steps of up to
/// `step_tokens` new ones, all sequences together. For num_pages from a memory budget.
FASA_API fasa_status fasa_paged_sizes(const fasa_options* options,
                                      const fasa_paged_options* paged_options, int32_t step_tokens,
                                      fasa_kv_memory* page, fasa_kv_memory* fixed);
FASA_API void fasa_paged_destroy(fasa_paged* paged);
FASA_API fasa_status fasa_paged_synchronize(fasa_paged* paged);
/// Reads what all layers of a step share, behind the work that `stream` has, and waits for it:
/// calls whose slots, tables or lengths lie in one of the ranges take what was read here, and do
/// not wait, until the next call of this function. With count 0 there are none. Ranges in host
/// memory need it not and are left alone.
FASA_API fasa_status fasa_paged_read_tables(fasa_paged* paged, const fasa_memory_range* ranges,
                                            size_t count, fasa_stream* stream);
/// k [tokens, kv_heads, key_dim], v [tokens, kv_heads, value_dim] to slots slot_mapping[tokens]; a
/// negative slot stores nothing. The tokens of one page stand side by side.
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
/// Exact causal attention of the newest query_lens[i] of the first seq_lens[i] tokens of every
/// sequence, all of them appended before: q [sum of query_lens, query_heads, key_dim], sequence
/// after sequence -> out, lse as above. The bits are those of FASA_PREFILL, however prompts are
/// cut. Where a step has several sequences, append the layer's tokens of all of them first: one may
/// read a page that another one writes.
FASA_API fasa_status fasa_prefill_paged(fasa_paged* paged, int32_t layer, const fasa_tensor* q,
                                        const fasa_block_table* block_table,
                                        const int32_t* seq_lens, const int32_t* query_lens,
                                        size_t seq_count, const fasa_tensor* out, float* lse,
                                        fasa_stream* stream);
/// Tokens of a layer in a page.
FASA_API fasa_status fasa_paged_held(fasa_paged* paged, int64_t page, int32_t layer,
                                     int32_t* tokens);
/// Stored keys and values of slots first, first + 1, ... of a page to k [tokens, kv_heads, key_dim]
/// and v [tokens, kv_heads, value_dim]. Waits for work under way.
FASA_API fasa_status fasa_paged_read(fasa_paged* paged, int64_t page, int32_t layer, int32_t first,
                                     const fasa_tensor* k, const fasa_tensor* v,
                                     fasa_stream* stream);
/// Destinations become their sources' equals, in order. Between steps: every layer has as many
/// tokens of the source.
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

/// One decode step of one layer over tensors of the device's: q [batch, query_heads, key_dim], k
/// [batch, kv_heads, tokens, key_dim], v [batch, kv_heads, tokens, value_dim], the newest token
/// included -> out [batch, query_heads, value_dim], lse [batch, query_heads] or null. `lengths`
/// [batch]: tokens of every entry that count, in host memory or the device's; null: all. The bits
/// are those of a sequence of the same tokens. No cache is kept: keys are indexed in every call.
/// Done on return.
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
