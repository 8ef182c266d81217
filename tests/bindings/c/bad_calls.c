/* Every misuse of the C API returns a status and a helpful message, and leaves all objects usable.
 */
#include "check.h"

static int failures;

/* The call fails with this status, and its message contains this text. */
static void expect(fasa_status status, fasa_status wanted, const char* text, int line) {
  if (status == wanted && strstr(fasa_last_error(), text) != NULL) return;
  fprintf(stderr, "bad_calls.c:%d: %s: \"%s\"; expected %s: \"%s\"\n", line,
          fasa_status_name(status), fasa_last_error(), fasa_status_name(wanted), text);
  ++failures;
}
#define USAGE(call, text) expect(call, FASA_ERROR_USAGE, text, __LINE__)
#define INPUT(call, text) expect(call, FASA_ERROR_INPUT, text, __LINE__)
#define BUDGET(call, text) expect(call, FASA_ERROR_BUDGET, text, __LINE__)

static fasa_config* options_of(const char* name, const char* value, fasa_status* status) {
  fasa_config_sources sources = FASA_CONFIG_SOURCES_INIT;
  sources.options = &name;
  sources.values = &value;
  sources.option_count = 1;
  fasa_config* config = NULL;
  *status = fasa_config_create(&sources, &config);
  return config;
}

static void configs(void) {
  fasa_config* config = NULL;
  const char* json = NULL;
  fasa_status status;
  CHECK(options_of("fac_tokns", "256", &status) == NULL);
  USAGE(status, "unknown key fac_tokns (nearest: fac_tokens)");
  CHECK(options_of("fac_tokens", "lots", &status) == NULL);
  USAGE(status, "--fac-tokens: selection.fac_tokens = \"lots\": allowed:");
  CHECK(options_of(NULL, "1", &status) == NULL);
  USAGE(status, "an option's name is null");
  CHECK(options_of("sinks", NULL, &status) == NULL);
  USAGE(status, "an option's value is null");

  fasa_config_sources sources = FASA_CONFIG_SOURCES_INIT;
  sources.toml = "[selection]\nsinks = -1\n";
  USAGE(fasa_config_create(&sources, &config), "config:2: selection.sinks = -1");
  sources.toml_name = "mine.toml";
  sources.toml = "nonsense";
  USAGE(fasa_config_create(&sources, &config), "mine.toml:1");
  sources.toml = NULL;
  sources.file = "/nowhere/fasa.toml";
  USAGE(fasa_config_create(&sources, &config), "/nowhere/fasa.toml");
  sources.file = NULL;
  sources.option_count = 1;
  USAGE(fasa_config_create(&sources, &config), "options is null");
  USAGE(fasa_config_create(NULL, NULL), "config is null");
  sources.struct_size = 3;
  USAGE(fasa_config_create(&sources, &config), "sources.struct_size = 3");
  struct {
    fasa_config_sources known;
    uint64_t unknown;
  } newer = {FASA_CONFIG_SOURCES_INIT, 1};
  newer.known.struct_size = sizeof newer;
  USAGE(fasa_config_create(&newer.known, &config), "newer version of fasa");
  newer.unknown = 0; /* set to nothing, it changes nothing */
  OK(fasa_config_create(&newer.known, &config));
  OK(fasa_config_json(config, &json));
  CHECK(strstr(json, "\"fac_tokens\"") != NULL);
  USAGE(fasa_config_json(NULL, &json), "config is null");
  USAGE(fasa_config_json(config, NULL), "json is null");
  fasa_config_destroy(config);
  fasa_config_destroy(NULL);

  fasa_fc_map* map = NULL;
  INPUT(fasa_fc_map_load("/nowhere/map.json", &map), "/nowhere/map.json");
  USAGE(fasa_fc_map_load(NULL, &map), "path is null");
  USAGE(fasa_fc_map_load("x", NULL), "map is null");
  fasa_fc_map_destroy(NULL);
}

static void devices(void) {
  fasa_status status;
  fasa_config* config = options_of("device.name", "abacus", &status);
  fasa_device* device = NULL;
  fasa_stream* stream = NULL;
  if (status == FASA_OK) status = fasa_device_open(config, &device);
  USAGE(status, "abacus");
  fasa_config_destroy(config);
  USAGE(fasa_device_open(NULL, NULL), "device is null");
  OK(fasa_device_open(NULL, &device));
  fasa_memory_use use = FASA_MEMORY_USE_INIT;
  USAGE(fasa_device_memory(device, (fasa_memory_space)7, &use), "space = 7");
  USAGE(fasa_device_memory(device, FASA_MEMORY_HOST, NULL), "use is null");
  use.struct_size = 0;
  USAGE(fasa_device_memory(device, FASA_MEMORY_HOST, &use), "use.struct_size = 0");
  USAGE(fasa_device_name(device, NULL), "name is null");
  USAGE(fasa_device_name(NULL, NULL), "null");
  USAGE(fasa_stream_create(NULL, &stream), "device is null");
  USAGE(fasa_stream_create(device, NULL), "stream is null");
  USAGE(fasa_stream_from_native(NULL, NULL, &stream), "device is null");
  USAGE(fasa_stream_synchronize(NULL), "stream is null");
  fasa_device_destroy(device);
  device = NULL;

  fasa_config* cpu = config_with("cpu", NULL, NULL, 0);
  OK(fasa_device_open(cpu, &device));
  USAGE(fasa_stream_from_native(device, &use, &stream), "no native streams");
  OK(fasa_stream_from_native(device, NULL, &stream));
  OK(fasa_stream_synchronize(stream));
  fasa_stream_destroy(stream);
  fasa_device_destroy(device);
  fasa_config_destroy(cpu);
  fasa_device_destroy(NULL);
  fasa_stream_destroy(NULL);
}

static fasa_status open_geometry(fasa_geometry geometry) {
  fasa_options options = FASA_OPTIONS_INIT;
  options.geometry = &geometry;
  fasa_runtime* runtime = NULL;
  const fasa_status status = fasa_runtime_create(&options, &runtime);
  fasa_runtime_destroy(runtime);
  return status;
}

static void openings(void) {
  fasa_runtime* runtime = NULL;
  fasa_options options = FASA_OPTIONS_INIT;
  USAGE(fasa_runtime_create(NULL, &runtime), "options is null");
  USAGE(fasa_runtime_create(&options, &runtime), "geometry is null");
  fasa_geometry geometry = FASA_GEOMETRY_INIT;
  USAGE(open_geometry(geometry), "geometry.layers = 0");
  const fasa_geometry good = small_geometry();
  OK(open_geometry(good));
  geometry = good;
  geometry.layers = 2000000000;
  USAGE(open_geometry(geometry), "geometry.layers");
  geometry = good;
  geometry.query_heads = 3;
  USAGE(open_geometry(geometry), "geometry.query_heads = 3");
  geometry = good;
  geometry.key_dim = -16;
  USAGE(open_geometry(geometry), "geometry.");
  geometry = good;
  geometry.unrotated_dims = 17;
  USAGE(open_geometry(geometry), "geometry.unrotated_dims = 17");
  geometry = good;
  geometry.score_cap = -1;
  USAGE(open_geometry(geometry), "geometry.score_cap = -1");
  geometry = good;
  geometry.struct_size = 0;
  USAGE(open_geometry(geometry), "geometry.struct_size = 0");
  options.geometry = &good;
  USAGE(fasa_runtime_create(&options, NULL), "runtime is null");
  options.first_kv_head = 2;
  USAGE(fasa_runtime_create(&options, &runtime), "allowed: at least one head, within 0 to 1");
  options.first_kv_head = INT32_MIN;
  USAGE(fasa_runtime_create(&options, &runtime), "allowed: at least one head, within 0 to 1");
  options.first_kv_head = 1;
  options.kv_head_count = 2;
  USAGE(fasa_runtime_create(&options, &runtime), "KV heads 1 to 2");
  options.first_kv_head = options.kv_head_count = 0;
  options.row_dtype = (fasa_dtype)9;
  USAGE(fasa_runtime_create(&options, &runtime), "row_dtype = 9");
  options.row_dtype = FASA_BF16;
  options.max_context = -1;
  USAGE(fasa_runtime_create(&options, &runtime), "max_context = -1");
  options.max_context = 0;
  fasa_status status;
  fasa_config* lean = options_of("slice", "lean", &status);
  options.config = lean;
  USAGE(fasa_runtime_create(&options, &runtime), "need an FC map");
  fasa_config_destroy(lean);
  const char* names[] = {"device_memory"};
  const char* values[] = {"1KiB"};
  fasa_config* tiny = config_with("emulated", names, values, 1);
  options.config = tiny;
  fasa_sequence sequence = 0;
  status = fasa_runtime_create(&options, &runtime);
  if (status == FASA_OK) status = fasa_sequence_create(runtime, &sequence);
  if (status == FASA_OK) status = fasa_sequence_reserve(runtime, sequence, 1000, 100);
  BUDGET(status, "device_memory");
  fasa_runtime_destroy(runtime);
  fasa_config_destroy(tiny);
}

static float data[4096];

static void sequences(const char* device) {
  fasa_config* config = config_with(device, NULL, NULL, 0);
  const fasa_geometry geometry = small_geometry();
  fasa_options options = FASA_OPTIONS_INIT;
  options.geometry = &geometry;
  options.config = config;
  fasa_runtime *runtime = NULL, *other = NULL;
  OK(fasa_runtime_create(&options, &runtime));
  OK(fasa_runtime_create(&options, &other));
  fasa_sequence sequence = 0, foreign = 0, freed = 0, fork = 0;
  int64_t length = 0;
  OK(fasa_sequence_create(runtime, &sequence));
  OK(fasa_sequence_create(other, &foreign));
  OK(fasa_sequence_create(runtime, &freed));
  OK(fasa_sequence_free(runtime, freed));
  CHECK(foreign != sequence);

  USAGE(fasa_sequence_create(NULL, &fork), "runtime is null");
  USAGE(fasa_sequence_create(runtime, NULL), "sequence is null");
  USAGE(fasa_sequence_fork(runtime, foreign, 0, &fork), "belongs to another runtime");
  USAGE(fasa_sequence_fork(runtime, sequence, 1, &fork), "length, 0");
  USAGE(fasa_sequence_fork(runtime, sequence, -1, &fork), "fork at token -1");
  USAGE(fasa_sequence_free(runtime, freed), "was freed");
  USAGE(fasa_sequence_free(other, sequence), "belongs to another runtime");
  USAGE(fasa_sequence_length(runtime, freed, &length), "was freed");
  USAGE(fasa_sequence_length(runtime, sequence, NULL), "tokens is null");
  USAGE(fasa_sequence_length(runtime, 0, &length), "never created");
  USAGE(fasa_sequence_length(runtime, UINT64_MAX, &length), "another runtime");
  USAGE(fasa_sequence_truncate(runtime, sequence, 5), "truncate to 5");
  USAGE(fasa_sequence_set_rollback_tokens(runtime, sequence, -1), "set_rollback_tokens: -1");
  USAGE(fasa_sequence_set_rollback_tokens(runtime, freed, 1), "was freed");
  USAGE(fasa_sequence_reserve(runtime, sequence, INT64_MAX, 1), "reserve");
  USAGE(fasa_sequence_reserve(runtime, sequence, 10, 0), "reserve");

  fasa_step_part part = {sequence, 3, FASA_PREFILL};
  USAGE(fasa_begin_step(NULL, &part, 1), "runtime is null");
  USAGE(fasa_begin_step(runtime, NULL, 1), "parts is null");
  USAGE(fasa_begin_step(runtime, &part, 0), "no sequences");
  part.mode = (fasa_step_mode)5;
  USAGE(fasa_begin_step(runtime, &part, 1), "mode = 5");
  part.mode = FASA_DECODE;
  part.tokens = 0;
  USAGE(fasa_begin_step(runtime, &part, 1), "0 new tokens");
  part.tokens = 3;
  part.sequence = foreign;
  USAGE(fasa_begin_step(runtime, &part, 1), "another runtime");
  USAGE(fasa_end_step(runtime, NULL, 0), "outside a step");
  USAGE(fasa_abort_step(runtime), "outside a step");
  part = (fasa_step_part){sequence, 3, FASA_PREFILL};
  OK(fasa_begin_step(runtime, &part, 1));
  USAGE(fasa_sequence_free(runtime, sequence), "inside a step");
  const fasa_tensor kv = tensor3(data, 3, 2, 16), q = tensor3(data, 3, 4, 16);
  fasa_tensor bad = kv;
  USAGE(fasa_append(runtime, 0, NULL, &kv, NULL), "k is null");
  bad.shape[0] = 2;
  USAGE(fasa_append(runtime, 0, &bad, &kv, NULL), "k is [2, 2, 16]; expected [3, 2, 16]");
  bad.shape[0] = -3;
  USAGE(fasa_append(runtime, 0, &kv, &bad, NULL), "v.shape[0] = -3");
  bad = kv;
  bad.shape[0] = bad.shape[1] = bad.shape[2] = INT64_MAX;
  USAGE(fasa_append(runtime, 0, &bad, &kv, NULL), "exceeds the address space");
  bad = kv;
  bad.ndim = 4;
  USAGE(fasa_append(runtime, 0, &kv, &bad, NULL), "v has 4 dimensions; expected 3");
  bad = kv;
  bad.dtype = (fasa_dtype)3;
  USAGE(fasa_append(runtime, 0, &kv, &bad, NULL), "v = 3: allowed: FASA_F32");
  bad = kv;
  bad.strides[0] = 64, bad.strides[1] = 32, bad.strides[2] = 2;
  USAGE(fasa_append(runtime, 0, &kv, &bad, NULL), "stride 2 in its last dimension; expected 1");
  bad = kv;
  bad.data = NULL;
  USAGE(fasa_append(runtime, 0, &bad, &kv, NULL), "and null");
  USAGE(fasa_append(runtime, 1, &kv, &kv, NULL), "layer 0 of 2 is next");
  USAGE(fasa_attend(runtime, 0, &q, &q, NULL, NULL), "before its append");
  OK(fasa_append(runtime, 0, &kv, &kv, NULL));
  USAGE(fasa_attend(runtime, 0, &kv, &q, NULL, NULL), "q is [3, 2, 16]; expected [3, 4, 16]");
  USAGE(fasa_attend(runtime, 0, &q, NULL, NULL, NULL), "out is null");
  USAGE(fasa_end_step(runtime, NULL, 0), "1 of 2 layers appended");
  USAGE(fasa_end_step(runtime, NULL, 1), "kept");
  fasa_device* elsewhere = NULL;
  fasa_stream* stream = NULL;
  OK(fasa_device_open(config, &elsewhere));
  OK(fasa_stream_create(elsewhere, &stream));
  USAGE(fasa_attend(runtime, 0, &q, &q, NULL, stream), "another device");
  fasa_stream_destroy(stream);
  fasa_device_destroy(elsewhere);
  OK(fasa_abort_step(runtime));

  USAGE(fasa_read(runtime, sequence, 0, 0, &kv, &kv, NULL), "the sequence has 0");
  fasa_kv_memory memory = FASA_KV_MEMORY_INIT;
  fasa_metrics metrics = FASA_METRICS_INIT;
  USAGE(fasa_memory(runtime, NULL), "memory is null");
  USAGE(fasa_estimate_memory(runtime, -5, 1, &memory), "estimate_memory: -5 tokens");
  USAGE(fasa_read_metrics(runtime, 2, &metrics), "metrics of layer 2");
  USAGE(fasa_read_metrics(runtime, -1, NULL), "metrics is null");
  USAGE(fasa_synchronize(NULL), "runtime is null");
  OK(fasa_sequence_length(runtime, sequence, &length));
  CHECK(length == 0);
  fasa_runtime_destroy(other);
  fasa_runtime_destroy(runtime);
  fasa_runtime_destroy(NULL);
  fasa_config_destroy(config);
}

static void pages(void) {
  const fasa_geometry geometry = small_geometry();
  fasa_options options = FASA_OPTIONS_INIT;
  options.geometry = &geometry;
  fasa_paged_options shape = FASA_PAGED_OPTIONS_INIT;
  fasa_paged* paged = NULL;
  USAGE(fasa_paged_create(&options, NULL, &paged), "paged_options is null");
  USAGE(fasa_paged_create(&options, &shape, &paged), "num_pages = 0");
  shape.num_pages = 4;
  shape.page_size = 100;
  USAGE(fasa_paged_create(&options, &shape, &paged), "page_size = 100");
  shape.page_size = 0; /* the usual one */
  OK(fasa_paged_create(&options, &shape, &paged));
  const fasa_tensor kv = tensor3(data, 2, 2, 16), q = tensor3(data, 1, 4, 16);
  fasa_tensor out = tensor3(data + 2048, 1, 4, 16);
  int64_t slots[2] = {64, 65};
  USAGE(fasa_append_paged(paged, 0, &kv, &kv, NULL, 2, NULL), "slot_mapping is null");
  USAGE(fasa_append_paged(paged, 0, &kv, &kv, slots, 1, NULL), "k is [2, 2, 16]; expected [1,");
  USAGE(fasa_append_paged(paged, 5, &kv, &kv, slots, 2, NULL), "append of layer 5");
  OK(fasa_append_paged(paged, 0, &kv, &kv, slots, 2, NULL));
  slots[0] = 68, slots[1] = 69;
  USAGE(fasa_append_paged(paged, 0, &kv, &kv, slots, 2, NULL), "allowed: 2 (the next) or 0");
  slots[0] = INT64_MAX;
  USAGE(fasa_append_paged(paged, 0, &kv, &kv, slots, 2, NULL), "slot_mapping[0]");
  int32_t table = 1, length = 3;
  fasa_block_table blocks = {&table, 1, 1, 0};
  USAGE(fasa_attend_paged(paged, 0, &q, &blocks, &length, 1, &out, NULL, NULL), "3 are needed");
  length = -1;
  USAGE(fasa_attend_paged(paged, 0, &q, &blocks, &length, 1, &out, NULL, NULL), "seq_lens[0]");
  length = 2;
  USAGE(fasa_attend_paged(paged, 0, &q, NULL, &length, 1, &out, NULL, NULL), "block_table is null");
  USAGE(fasa_attend_paged(paged, 0, &q, &blocks, NULL, 1, &out, NULL, NULL), "seq_lens is null");
  USAGE(fasa_attend_paged(paged, 0, &q, &blocks, &length, 2, &out, NULL, NULL), "2 seq_lens");
  table = 99;
  USAGE(fasa_attend_paged(paged, 0, &q, &blocks, &length, 1, &out, NULL, NULL), "page 99");
  table = 1;
  blocks.pages = NULL;
  USAGE(fasa_attend_paged(paged, 0, &q, &blocks, &length, 1, &out, NULL, NULL), "table is empty");
  blocks.pages = &table;
  OK(fasa_attend_paged(paged, 0, &q, &blocks, &length, 1, &out, NULL, NULL));
  int32_t count = 3;
  length = 2;
  USAGE(fasa_prefill_paged(paged, 0, &q, &blocks, &length, &count, 1, &out, NULL, NULL),
        "query_lens[0] = 3: allowed: 1 to seq_lens[0] = 2");
  USAGE(fasa_prefill_paged(paged, 0, &q, &blocks, &length, NULL, 1, &out, NULL, NULL),
        "query_lens is null");
  count = 2;
  USAGE(fasa_prefill_paged(paged, 0, &q, &blocks, &length, &count, 1, &out, NULL, NULL),
        "q is [1, 4, 16]; expected [2,");
  count = 1;
  OK(fasa_prefill_paged(paged, 0, &q, &blocks, &length, &count, 1, &out, NULL, NULL));
  USAGE(fasa_paged_held(paged, 4, 0, &count), "page 4: allowed: 0 to 3");
  USAGE(fasa_paged_held(paged, 1, 0, NULL), "tokens is null");
  USAGE(fasa_paged_read(paged, 1, 0, 1, &kv, &kv, NULL), "tokens 1 to 2 of page 1, layer 0");
  fasa_kv_memory bytes = FASA_KV_MEMORY_INIT;
  USAGE(fasa_paged_sizes(&options, &shape, 1, &bytes, &bytes), "max_context = 0");
  USAGE(fasa_paged_sizes(&options, &shape, 1, &bytes, NULL), "fixed is null");
  fasa_options stage = options;
  stage.first_layer = geometry.layers;
  USAGE(fasa_paged_create(&stage, &shape, &paged), "allowed: at least one layer, within 0 to");
  const fasa_page_copy copy = {1, 2};
  USAGE(fasa_copy_pages(paged, &copy, 1), "call it between steps");
  USAGE(fasa_copy_pages(paged, NULL, 1), "copies is null");
  const int64_t page = 4;
  USAGE(fasa_drop_pages(paged, &page, 1), "page 4: allowed: 0 to 3");
  USAGE(fasa_drop_pages(NULL, &page, 1), "paged is null");
  USAGE(fasa_paged_synchronize(NULL), "paged is null");
  fasa_paged_destroy(paged);
  fasa_paged_destroy(NULL);
}

static void stateless(void) {
  const fasa_geometry geometry = small_geometry();
  fasa_options options = FASA_OPTIONS_INIT;
  options.geometry = &geometry;
  const fasa_tensor q = tensor3(data, 1, 4, 16);
  fasa_tensor out = tensor3(data + 2048, 1, 4, 16);
  fasa_tensor kv = tensor3(data, 1, 2, 30);
  USAGE(fasa_sparse_decode(&options, 0, &q, &kv, &kv, NULL, &out, NULL, NULL),
        "k has 3 dimensions");
  kv.ndim = 4;
  kv.shape[3] = 16;
  OK(fasa_sparse_decode(&options, 0, &q, &kv, &kv, NULL, &out, NULL, NULL));
  USAGE(fasa_sparse_decode(&options, 2, &q, &kv, &kv, NULL, &out, NULL, NULL), "layer 2");
  const int64_t length = 31;
  USAGE(fasa_sparse_decode(&options, 0, &q, &kv, &kv, &length, &out, NULL, NULL), "length = 31");
  USAGE(fasa_sparse_decode(NULL, 0, &q, &kv, &kv, NULL, &out, NULL, NULL), "options is null");
}

int main(void) {
  CHECK(strcmp(fasa_status_name((fasa_status)99), "unknown") == 0);
  configs();
  devices();
  openings();
  sequences("cpu");
  sequences("emulated");
  pages();
  stateless();
  if (failures > 0) return 1;
  printf("bad_calls: all refused\n");
  return 0;
}
