// Two answers to one prompt. The prompt's keys and values are stored once: a fork shares them. The
// device is emulated, so the program shows what lies on the device and what in host memory.
//
//   cc -std=c11 shared_prompt.c $(pkg-config --cflags --libs fasa)
#include <fasa/fasa.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPrompt = 4096, kKvHeads = 2, kQueryHeads = 8, kDim = 64 };

static float keys[kPrompt][kKvHeads][kDim], values[kPrompt][kKvHeads][kDim];
static float query[kQueryHeads][kDim], out[kQueryHeads][kDim];

static void check(fasa_status status) {
  if (status == FASA_OK) return;
  fprintf(stderr, "%s: %s\n", fasa_status_name(status), fasa_last_error());
  exit(1);
}

static fasa_tensor tensor(void* data, int64_t tokens, int64_t heads) {
  return (fasa_tensor){.data = data, .dtype = FASA_F32, .ndim = 3, .shape = {tokens, heads, kDim}};
}

// Stores the sequence's next `tokens` tokens; with one token, attends to the best of all.
static void step(fasa_runtime* runtime, fasa_sequence sequence, int32_t tokens) {
  const int decodes = tokens == 1;
  fasa_step_part part = {sequence, tokens, decodes ? FASA_DECODE : FASA_PREFILL};
  check(fasa_begin_step(runtime, &part, 1));
  fasa_tensor k = tensor(keys, tokens, kKvHeads), v = tensor(values, tokens, kKvHeads);
  check(fasa_append(runtime, 0, &k, &v, NULL));
  if (decodes) {
    fasa_tensor q = tensor(query, 1, kQueryHeads), results = tensor(out, 1, kQueryHeads);
    check(fasa_attend(runtime, 0, &q, &results, NULL, NULL));
  }
  check(fasa_end_step(runtime, NULL, 0));
  check(fasa_synchronize(runtime));
}

int main(void) {
  for (int i = 0; i < kPrompt * kKvHeads * kDim; ++i) {
    (&keys[0][0][0])[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    (&values[0][0][0])[i] = 1;  // whatever is attended to, the output is 1
  }
  for (int i = 0; i < kQueryHeads * kDim; ++i) (&query[0][0])[i] = (float)(i % 3) - 1;

  const char* names[] = {"fac_tokens", "device.name", "device_memory"};
  const char* texts[] = {"128", "emulated", "64MiB"};
  fasa_config_sources sources = FASA_CONFIG_SOURCES_INIT;
  sources.options = names;
  sources.values = texts;
  sources.option_count = 3;
  fasa_config* config = NULL;
  check(fasa_config_create(&sources, &config));

  fasa_geometry geometry = FASA_GEOMETRY_INIT;
  geometry.layers = 1;
  geometry.kv_heads = kKvHeads;
  geometry.query_heads = kQueryHeads;
  geometry.key_dim = kDim;
  fasa_options options = FASA_OPTIONS_INIT;
  options.geometry = &geometry;
  options.config = config;
  fasa_runtime* runtime = NULL;
  check(fasa_runtime_create(&options, &runtime));

  fasa_sequence first, second;
  check(fasa_sequence_create(runtime, &first));
  step(runtime, first, kPrompt);
  check(fasa_sequence_fork(runtime, first, kPrompt, &second));
  step(runtime, first, 1);
  step(runtime, second, 1);

  fasa_kv_memory memory = FASA_KV_MEMORY_INIT;
  check(fasa_memory(runtime, &memory));
  int64_t length = 0;
  check(fasa_sequence_length(runtime, second, &length));
  printf("out[0][0] = %.3f, both sequences have %lld tokens\n", out[0][0], (long long)length);
  printf("slices on the device %.0f KiB, rows in host memory %.0f KiB\n",
         (double)memory.device_slices / 1024, (double)memory.host_rows / 1024);
  fasa_runtime_destroy(runtime);
  fasa_config_destroy(config);
  return 0;
}
