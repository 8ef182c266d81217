/* The three APIs of the installed library give the same bits for the same tokens, on every device
 * of the build, with rows in f32 and in eight bits. A runtime with a range of the heads gives the
 * same bits for its heads. */
#include "check.h"

enum { kLayers = 2, kKv = 2, kQuery = 4, kDim = 32, kTokens = 200, kPage = 64 };

/* [layer][token][head][dim], all layers and heads of the model. */
static float keys[kLayers][kTokens][kKv][kDim];
static float values[kLayers][kTokens][kKv][kDim];
static float queries[kLayers][kTokens][kQuery][kDim];

/* The newest token's attention. */
struct result {
  float out[kLayers][kQuery][kDim];
  float lse[kLayers][kQuery];
};

static void step(fasa_runtime* runtime, fasa_sequence sequence, int first, int tokens,
                 fasa_step_mode mode, fasa_stream* stream, struct result* result) {
  static float out[kTokens][kQuery][kDim];
  static float lse[kTokens][kQuery];
  const fasa_step_part part = {sequence, tokens, mode};
  OK(fasa_begin_step(runtime, &part, 1));
  for (int layer = 0; layer < kLayers; ++layer) {
    const fasa_tensor k = tensor3(keys[layer][first], tokens, kKv, kDim);
    const fasa_tensor v = tensor3(values[layer][first], tokens, kKv, kDim);
    const fasa_tensor q = tensor3(queries[layer][first], tokens, kQuery, kDim);
    const fasa_tensor o = tensor3(out, tokens, kQuery, kDim);
    OK(fasa_append(runtime, layer, &k, &v, stream));
    OK(fasa_attend(runtime, layer, &q, &o, lse[0], stream));
    OK(stream != NULL ? fasa_stream_synchronize(stream) : fasa_synchronize(runtime));
    memcpy(result->out[layer], out[tokens - 1], sizeof out[0]);
    memcpy(result->lse[layer], lse[tokens - 1], sizeof lse[0]);
  }
  OK(fasa_end_step(runtime, NULL, 0));
}

/* A code's step is 1/127 of the vector's largest element; a code may be off by one step. */
/* Where a step may have drafts: of three tokens one stays. */
static void check_drafts(fasa_runtime* runtime, fasa_sequence sequence, int first) {
  int32_t most = 0;
  OK(fasa_sequence_max_drafted(runtime, sequence, &most));
  CHECK(most >= 1);
  if (most < 3) return;
  const fasa_step_part part = {sequence, 3, FASA_DECODE};
  OK(fasa_begin_step(runtime, &part, 1));
  for (int layer = 0; layer < kLayers; ++layer) {
    const fasa_tensor k = tensor3(keys[layer][first], 3, kKv, kDim);
    const fasa_tensor v = tensor3(values[layer][first], 3, kKv, kDim);
    OK(fasa_append(runtime, layer, &k, &v, NULL));
  }
  const int32_t kept = 1;
  OK(fasa_end_step(runtime, &kept, 1));
  int64_t length = 0;
  OK(fasa_sequence_length(runtime, sequence, &length));
  CHECK(length == first + 1);
}

static float magnitude(float value) { return value < 0 ? -value : value; }
static void check_codes(const float* stored, const float* given) {
  float largest = 0;
  for (int d = 0; d < kDim; ++d) {
    if (magnitude(given[d]) > largest) largest = magnitude(given[d]);
  }
  for (int d = 0; d < kDim; ++d) {
    CHECK(magnitude(stored[d] - given[d]) <= largest * 1.01f / 127);
  }
}

static void check_read(fasa_runtime* runtime, fasa_sequence sequence, int coded) {
  static float k[70][kKv][kDim];
  static float v[70][kKv][kDim];
  const fasa_tensor to_k = tensor3(k, 70, kKv, kDim);
  const fasa_tensor to_v = tensor3(v, 70, kKv, kDim);
  OK(fasa_read(runtime, sequence, 1, 50, &to_k, &to_v, NULL));
  OK(fasa_synchronize(runtime));
  if (!coded) {
    CHECK(memcmp(k, keys[1][50], sizeof k) == 0); /* rows are f32 */
    CHECK(memcmp(v, values[1][50], sizeof v) == 0);
    return;
  }
  for (int i = 0; i < 70 * kKv; ++i) {
    check_codes(k[i / kKv][i % kKv], keys[1][50 + i / kKv][i % kKv]);
    check_codes(v[i / kKv][i % kKv], values[1][50 + i / kKv][i % kKv]);
  }
}

static void run_sequences(const fasa_options* options, fasa_stream* stream, int coded,
                          struct result* result) {
  fasa_runtime* runtime = NULL;
  OK(fasa_runtime_create(options, &runtime));
  fasa_sequence parent = 0, child = 0;
  OK(fasa_sequence_create(runtime, &parent));
  OK(fasa_sequence_reserve(runtime, parent, kTokens, 64));
  for (int first = 0; first < kTokens; first += 64) {
    const int tokens = kTokens - first < 64 ? kTokens - first : 64;
    step(runtime, parent, first, tokens, FASA_PREFILL, stream, result);
  }
  OK(fasa_sequence_fork(runtime, parent, 150, &child));
  OK(fasa_sequence_free(runtime, parent));
  for (int first = 150; first < kTokens; ++first) {
    step(runtime, child, first, 1, FASA_DECODE, stream, result);
  }
  int64_t length = 0;
  OK(fasa_sequence_length(runtime, child, &length));
  CHECK(length == kTokens);
  check_read(runtime, child, coded);

  fasa_metrics metrics = FASA_METRICS_INIT;
  OK(fasa_read_metrics(runtime, -1, &metrics));
  CHECK(metrics.decode_steps == 50);
  fasa_metrics layer = FASA_METRICS_INIT;
  OK(fasa_read_metrics(runtime, 0, &layer));
  CHECK(layer.hits + layer.misses < metrics.hits + metrics.misses);
  OK(fasa_reset_metrics(runtime));
  OK(fasa_read_metrics(runtime, -1, &metrics));
  CHECK(metrics.decode_steps == 0);
  fasa_kv_memory memory = FASA_KV_MEMORY_INIT;
  fasa_kv_memory predicted = FASA_KV_MEMORY_INIT;
  OK(fasa_memory(runtime, &memory));
  OK(fasa_estimate_memory(runtime, kTokens, 64, &predicted));
  CHECK(memory.device_slices > 0 && memory.host_rows + memory.device_rows > 0);
  CHECK(predicted.host_rows + predicted.device_rows > 0);
  CHECK(memory.device_states == 0 && memory.host_states == 0);
  OK(fasa_sequence_set_rollback_tokens(runtime, child, INT64_MAX));
  OK(fasa_sequence_truncate(runtime, child, 10));
  OK(fasa_sequence_length(runtime, child, &length));
  CHECK(length == 10);
  check_drafts(runtime, child, 10);
  fasa_runtime_destroy(runtime);
}

/* The prompt's attention over pages, in chunks: equal to `prompt`, which takes the same tokens in
 * one step. */
static float prompt[kLayers][kTokens][kQuery][kDim];
static void prefill_pages(fasa_paged* paged, int layer, const fasa_block_table* blocks,
                          fasa_stream* stream) {
  static float out[kTokens][kQuery][kDim];
  for (int32_t first = 0; first < kTokens - 3; first += 70) {
    const int32_t count = kTokens - 3 - first < 70 ? kTokens - 3 - first : 70;
    const int32_t length = first + count;
    const fasa_tensor q = tensor3(queries[layer][first], count, kQuery, kDim);
    const fasa_tensor o = tensor3(out[first], count, kQuery, kDim);
    OK(fasa_prefill_paged(paged, layer, &q, blocks, &length, &count, 1, &o, NULL, stream));
    OK(stream != NULL ? fasa_stream_synchronize(stream) : fasa_paged_synchronize(paged));
  }
  CHECK(memcmp(out, prompt[layer], sizeof(float) * (kTokens - 3) * kQuery * kDim) == 0);
}

static void run_prompt(const fasa_options* options, fasa_stream* stream) {
  fasa_runtime* runtime = NULL;
  OK(fasa_runtime_create(options, &runtime));
  fasa_sequence sequence = 0;
  OK(fasa_sequence_create(runtime, &sequence));
  const fasa_step_part part = {sequence, kTokens, FASA_PREFILL};
  OK(fasa_begin_step(runtime, &part, 1));
  for (int layer = 0; layer < kLayers; ++layer) {
    const fasa_tensor k = tensor3(keys[layer], kTokens, kKv, kDim);
    const fasa_tensor v = tensor3(values[layer], kTokens, kKv, kDim);
    const fasa_tensor q = tensor3(queries[layer], kTokens, kQuery, kDim);
    const fasa_tensor o = tensor3(prompt[layer], kTokens, kQuery, kDim);
    OK(fasa_append(runtime, layer, &k, &v, stream));
    OK(fasa_attend(runtime, layer, &q, &o, NULL, stream));
  }
  OK(fasa_end_step(runtime, NULL, 0));
  OK(stream != NULL ? fasa_stream_synchronize(stream) : fasa_synchronize(runtime));
  fasa_runtime_destroy(runtime);
}

static void check_pages(const fasa_options* options, const fasa_paged_options* pages,
                        fasa_paged* paged, int coded) {
  fasa_kv_memory page = FASA_KV_MEMORY_INIT, fixed = FASA_KV_MEMORY_INIT;
  fasa_kv_memory memory = FASA_KV_MEMORY_INIT;
  fasa_options long_enough = *options;
  long_enough.max_context = kTokens;
  OK(fasa_paged_sizes(&long_enough, pages, kTokens, &page, &fixed));
  OK(fasa_paged_memory(paged, &memory));
  CHECK(page.host_rows * 6 == memory.host_rows && page.device_rows * 6 == memory.device_rows);
  CHECK(page.device_slices * 6 <= memory.device_slices && fixed.device_scratch > 0);
  CHECK(memory.device_slices <= page.device_slices * 6 + fixed.device_slices);
  int32_t held = -1;
  OK(fasa_paged_held(paged, 1, 1, &held));
  CHECK(held == kPage);
  static float k[kPage - 4][kKv][kDim], v[kPage - 4][kKv][kDim];
  const fasa_tensor to_k = tensor3(k, kPage - 4, kKv, kDim);
  const fasa_tensor to_v = tensor3(v, kPage - 4, kKv, kDim);
  OK(fasa_paged_read(paged, 1, 1, 4, &to_k, &to_v, NULL));
  OK(fasa_paged_synchronize(paged));
  if (coded) {
    check_codes(v[5][1], values[1][kPage + 9][1]);
    return;
  }
  CHECK(memcmp(k, keys[1][kPage + 4], sizeof k) == 0);
  CHECK(memcmp(v, values[1][kPage + 4], sizeof v) == 0);
}

/* Page ids in no particular order; one page is copied between steps. */
static void run_paged(const fasa_options* options, fasa_stream* stream, int coded,
                      struct result* result) {
  fasa_paged_options pages = FASA_PAGED_OPTIONS_INIT;
  pages.page_size = kPage;
  pages.num_pages = 6;
  fasa_paged* paged = NULL;
  OK(fasa_paged_create(options, &pages, &paged));
  int32_t table[4] = {5, 1, 3, 0};
  int64_t slots[kTokens];
  for (int i = 0; i < kTokens; ++i) slots[i] = (int64_t)table[i / kPage] * kPage + i % kPage;
  for (int layer = 0; layer < kLayers; ++layer) {
    const fasa_tensor k = tensor3(keys[layer], kTokens - 3, kKv, kDim);
    const fasa_tensor v = tensor3(values[layer], kTokens - 3, kKv, kDim);
    OK(fasa_append_paged(paged, layer, &k, &v, slots, kTokens - 3, stream));
    const fasa_block_table prompt_blocks = {table, 1, 4, 0};
    prefill_pages(paged, layer, &prompt_blocks, stream);
  }
  check_pages(options, &pages, paged, coded);
  const fasa_page_copy copy = {table[3], 4};
  OK(fasa_copy_pages(paged, &copy, 1));
  const int64_t dropped = table[3];
  OK(fasa_drop_pages(paged, &dropped, 1));
  table[3] = 4;
  const fasa_block_table blocks = {table, 1, 4, 0};
  for (int32_t length = kTokens - 2; length <= kTokens; ++length) {
    const int token = length - 1;
    const int64_t slot = (int64_t)table[3] * kPage + token % kPage;
    for (int layer = 0; layer < kLayers; ++layer) {
      const fasa_tensor k = tensor3(keys[layer][token], 1, kKv, kDim);
      const fasa_tensor v = tensor3(values[layer][token], 1, kKv, kDim);
      const fasa_tensor q = tensor3(queries[layer][token], 1, kQuery, kDim);
      const fasa_tensor out = tensor3(result->out[layer], 1, kQuery, kDim);
      OK(fasa_append_paged(paged, layer, &k, &v, &slot, 1, stream));
      OK(fasa_attend_paged(paged, layer, &q, &blocks, &length, 1, &out, result->lse[layer],
                           stream));
    }
    OK(stream != NULL ? fasa_stream_synchronize(stream) : fasa_paged_synchronize(paged));
  }
  fasa_metrics metrics = FASA_METRICS_INIT;
  OK(fasa_paged_read_metrics(paged, -1, &metrics));
  CHECK(metrics.decode_steps == 3);
  OK(fasa_paged_reset_metrics(paged));
  fasa_kv_memory memory = FASA_KV_MEMORY_INIT;
  OK(fasa_paged_memory(paged, &memory));
  CHECK(memory.device_slices > 0);
  fasa_paged_destroy(paged);
}

/* k and v as [batch, heads, tokens, dim] views of [tokens, heads, dim]. */
static void run_stateless(const fasa_options* options, fasa_stream* stream, struct result* result) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const fasa_tensor q = tensor3(queries[layer][kTokens - 1], 1, kQuery, kDim);
    const fasa_tensor out = tensor3(result->out[layer], 1, kQuery, kDim);
    fasa_tensor k = tensor3(keys[layer], 0, 0, 0);
    const int64_t shape[4] = {1, kKv, kTokens, kDim};
    const int64_t strides[4] = {kTokens * kKv * kDim, kDim, kKv * kDim, 1};
    k.ndim = 4;
    memcpy(k.shape, shape, sizeof shape);
    memcpy(k.strides, strides, sizeof strides);
    fasa_tensor v = k;
    v.data = values[layer];
    OK(fasa_sparse_decode(options, layer, &q, &k, &v, NULL, &out, result->lse[layer], stream));
  }
}

/* KV head 1 alone: the second half of the query heads. */
static void run_share(const fasa_options* options, struct result* result) {
  fasa_options share = *options;
  share.first_kv_head = 1;
  fasa_runtime* runtime = NULL;
  OK(fasa_runtime_create(&share, &runtime));
  fasa_sequence sequence = 0;
  OK(fasa_sequence_create(runtime, &sequence));
  for (int first = 0; first < kTokens;) {
    const int tokens = first == 0 ? 150 : 1;
    const fasa_step_part part = {sequence, tokens, tokens > 1 ? FASA_PREFILL : FASA_DECODE};
    OK(fasa_begin_step(runtime, &part, 1));
    for (int layer = 0; layer < kLayers; ++layer) {
      static float out[150][2][kDim];
      fasa_tensor k = tensor3(keys[layer][first][1], tokens, 1, kDim);
      fasa_tensor v = tensor3(values[layer][first][1], tokens, 1, kDim);
      fasa_tensor q = tensor3(queries[layer][first][2], tokens, 2, kDim);
      const fasa_tensor o = tensor3(out, tokens, 2, kDim);
      const int64_t kv_strides[3] = {kKv * kDim, kDim, 1};
      const int64_t q_strides[3] = {kQuery * kDim, kDim, 1};
      memcpy(k.strides, kv_strides, sizeof kv_strides);
      memcpy(v.strides, kv_strides, sizeof kv_strides);
      memcpy(q.strides, q_strides, sizeof q_strides);
      OK(fasa_append(runtime, layer, &k, &v, NULL));
      OK(fasa_attend(runtime, layer, &q, &o, NULL, NULL));
      OK(fasa_synchronize(runtime));
      memcpy(result->out[layer][2], out[tokens - 1], sizeof out[0]);
    }
    OK(fasa_end_step(runtime, NULL, 0));
    first += tokens;
  }
  fasa_runtime_destroy(runtime);
}

/* Layer 1 alone, as one stage of a model split over several processes. */
static void run_stage(const fasa_options* options, struct result* result) {
  fasa_options stage = *options;
  stage.first_layer = 1;
  fasa_paged_options pages = FASA_PAGED_OPTIONS_INIT;
  pages.num_pages = 4;
  fasa_paged* paged = NULL;
  OK(fasa_paged_create(&stage, &pages, &paged));
  int64_t slots[kTokens];
  for (int i = 0; i < kTokens; ++i) slots[i] = i;
  const int32_t table[4] = {0, 1, 2, 3}, length = kTokens;
  const fasa_block_table blocks = {table, 1, 4, 0};
  const fasa_tensor k = tensor3(keys[1], kTokens, kKv, kDim);
  const fasa_tensor v = tensor3(values[1], kTokens, kKv, kDim);
  const fasa_tensor q = tensor3(queries[1][kTokens - 1], 1, kQuery, kDim);
  const fasa_tensor out = tensor3(result->out[1], 1, kQuery, kDim);
  OK(fasa_append_paged(paged, 0, &k, &v, slots, kTokens, NULL));
  OK(fasa_attend_paged(paged, 0, &q, &blocks, &length, 1, &out, NULL, NULL));
  OK(fasa_paged_synchronize(paged));
  fasa_paged_destroy(paged);
}

static void run_device(const char* name, const char* row_dtype) {
  const char* const option = "row_dtype";
  fasa_config* config = config_with(name, &option, &row_dtype, 1);
  const int coded = strcmp(row_dtype, "int8") == 0;
  fasa_device* device = NULL;
  OK(fasa_device_open(config, &device));
  const char* opened = NULL;
  OK(fasa_device_name(device, &opened));
  CHECK(strcmp(opened, name) == 0);
  fasa_geometry geometry = small_geometry();
  geometry.key_dim = geometry.value_dim = kDim;
  geometry.score_cap = coded ? 2.0f : 0;
  fasa_options options = FASA_OPTIONS_INIT;
  options.geometry = &geometry;
  options.config = config;
  options.device = device;
  options.row_dtype = FASA_BF16; /* the config's goes first */
  fasa_stream* stream = NULL;
  OK(fasa_stream_create(device, &stream));

  static struct result sequences, again, paged, stateless, share, stage;
  run_sequences(&options, NULL, coded, &sequences);
  run_sequences(&options, stream, coded, &again);
  CHECK(memcmp(&sequences, &again, sizeof again) == 0);
  run_prompt(&options, stream);
  run_paged(&options, stream, coded, &paged);
  CHECK(memcmp(&sequences, &paged, sizeof paged) == 0);
  run_stateless(&options, NULL, &stateless);
  CHECK(memcmp(&sequences, &stateless, sizeof stateless) == 0);
  run_stateless(&options, stream, &stateless);
  CHECK(memcmp(&sequences, &stateless, sizeof stateless) == 0);
  run_share(&options, &share);
  for (int layer = 0; layer < kLayers; ++layer) {
    CHECK(memcmp(sequences.out[layer][2], share.out[layer][2], sizeof share.out[layer] / 2) == 0);
  }

  run_stage(&options, &stage);
  CHECK(memcmp(sequences.out[1], stage.out[1], sizeof stage.out[1]) == 0);

  fasa_memory_use use = FASA_MEMORY_USE_INIT;
  OK(fasa_device_memory(device, FASA_MEMORY_DEVICE, &use));
  CHECK(use.used_bytes == 0 && use.peak_bytes > 0); /* everything was given back */
  /* The order does not matter. */
  fasa_runtime* last = NULL;
  OK(fasa_runtime_create(&options, &last));
  fasa_config_destroy(config);
  fasa_device_destroy(device);
  fasa_stream_destroy(stream);
  fasa_runtime_destroy(last);
}

int main(void) {
  for (int layer = 0; layer < kLayers; ++layer) {
    fill(keys[layer][0][0], kTokens * kKv * kDim, 10 + (uint64_t)layer);
    fill(values[layer][0][0], kTokens * kKv * kDim, 20 + (uint64_t)layer);
    fill(queries[layer][0][0], kTokens * kQuery * kDim, 30 + (uint64_t)layer);
  }
  CHECK(strcmp(fasa_last_error(), "") == 0);
  run_device("cpu", "f32");
  run_device("emulated", "f32");
  run_device("cpu", "int8");
  run_device("emulated", "int8");
  printf("apis: fasa %s gives the same bits through every API\n", fasa_version());
  return 0;
}
