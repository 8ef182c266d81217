/* Shared by the C test programs: checks that end the program on failure, and reproducible noise. */
#ifndef FASA_TESTS_CHECK_H
#define FASA_TESTS_CHECK_H

#include <fasa/fasa.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

#define OK(call)                                                                        \
  do {                                                                                  \
    const fasa_status status_ = (call);                                                 \
    if (status_ != FASA_OK) {                                                           \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, fasa_status_name(status_), \
              fasa_last_error());                                                       \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

/* In [-1, 1); equal arguments give equal values. */
static inline float noise(uint64_t place) {
  uint64_t z = place + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (float)((double)(z >> 40) / (double)(1 << 23) - 1.0);
}

static inline void fill(float* values, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; ++i) values[i] = noise(seed * 1000003u + i);
}

/* A contiguous tensor, [tokens, heads, dim]. */
static inline fasa_tensor tensor3(void* data, int64_t tokens, int64_t heads, int64_t dim) {
  fasa_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.dtype = FASA_F32;
  tensor.ndim = 3;
  tensor.shape[0] = tokens;
  tensor.shape[1] = heads;
  tensor.shape[2] = dim;
  return tensor;
}

static inline fasa_config* config_with(const char* device, const char* const* more,
                                       const char* const* values, size_t count) {
  const char* names[16] = {"device.name", "fac_tokens", "sinks", "recent"};
  const char* texts[16] = {device, "48", "3", "5"};
  for (size_t i = 0; i < count; ++i) {
    names[4 + i] = more[i];
    texts[4 + i] = values[i];
  }
  fasa_config_sources sources = FASA_CONFIG_SOURCES_INIT;
  sources.options = names;
  sources.values = texts;
  sources.option_count = 4 + count;
  fasa_config* config = NULL;
  OK(fasa_config_create(&sources, &config));
  return config;
}

static inline fasa_geometry small_geometry(void) {
  fasa_geometry geometry = FASA_GEOMETRY_INIT;
  geometry.layers = 2;
  geometry.kv_heads = 2;
  geometry.query_heads = 4;
  geometry.key_dim = 16;
  return geometry;
}

#endif
