// The three APIs of the installed header give the same bits for the same tokens. A failed call
// throws the exception of its error kind, and a step object that is destroyed before end() leaves
// its sequences unchanged.
#include <fasa/fasa.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kLayers = 2;
constexpr int kKv = 2;
constexpr int kQuery = 4;
constexpr int kDim = 16;
constexpr int kTokens = 200;
constexpr int kPage = 64;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (false)

template <typename Thrown, typename Call>
std::string text_of(const Call& call) {
  try {
    call();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "";
}

// [layer][token][head][dim], pseudo-random values.
struct Tokens {
  std::vector<float> k = std::vector<float>(size_t{kLayers} * kTokens * kKv * kDim);
  std::vector<float> v = k;
  std::vector<float> q = std::vector<float>(size_t{kLayers} * kTokens * kQuery * kDim);

  Tokens() {
    int i = 0;
    for (std::vector<float>* values : {&k, &v, &q}) {
      for (float& value : *values) value = std::sin(0.7f * static_cast<float>(i++));
    }
  }
  static float* at(std::vector<float>& values, int heads, int layer, int token) {
    return values.data() + (static_cast<size_t>(layer) * kTokens + static_cast<size_t>(token)) *
                               static_cast<size_t>(heads * kDim);
  }
};

// The newest token's attention, all layers.
using Out = std::vector<float>;

void run_layers(fasa::Runtime& runtime, Tokens& tokens, int first, int count, Out* out) {
  std::vector<float> all(static_cast<size_t>(count) * kQuery * kDim);
  for (int layer = 0; layer < kLayers; ++layer) {
    runtime.append(layer, {Tokens::at(tokens.k, kKv, layer, first), count, kKv, kDim},
                   {Tokens::at(tokens.v, kKv, layer, first), count, kKv, kDim});
    runtime.attend(layer, {Tokens::at(tokens.q, kQuery, layer, first), count, kQuery, kDim},
                   {all.data(), count, kQuery, kDim});
    runtime.synchronize();
    std::copy(all.end() - kQuery * kDim, all.end(), out->begin() + layer * kQuery * kDim);
  }
}

Out of_sequences(const fasa::Options& options, Tokens& tokens) {
  fasa::Runtime runtime(options);
  Out out(size_t{kLayers} * kQuery * kDim);
  const fasa::Sequence sequence = runtime.create();
  runtime.reserve(sequence, kTokens, kTokens);
  {
    fasa::Step step(runtime, {sequence, kTokens - 1, fasa::StepMode::kPrefill});
    run_layers(runtime, tokens, 0, kTokens - 1, &out);
    step.end();
  }
  { const fasa::Step left(runtime, {sequence, 1, fasa::StepMode::kDecode}); }
  CHECK(runtime.length(sequence) == kTokens - 1);
  fasa::Step step(runtime, {sequence, 1, fasa::StepMode::kDecode});
  run_layers(runtime, tokens, kTokens - 1, 1, &out);
  step.end();
  CHECK(runtime.length(sequence) == kTokens);
  CHECK(runtime.metrics().decode_steps == 1);
  CHECK(runtime.memory().device_slices > 0);

  std::vector<float> k(size_t{70} * kKv * kDim);
  std::vector<float> v = k;
  runtime.read(sequence, 1, 50, {k.data(), 70, kKv, kDim}, {v.data(), 70, kKv, kDim});
  runtime.synchronize();
  CHECK(std::memcmp(k.data(), Tokens::at(tokens.k, kKv, 1, 50), k.size() * sizeof(float)) == 0);

  const std::string said = text_of<fasa::UsageError>([&] { runtime.fork(sequence, kTokens + 1); });
  CHECK(said.find("fork at token 201") == 0);
  return out;
}

Out of_pages(const fasa::Options& options, Tokens& tokens) {
  fasa::PagedRuntime runtime(options, {.size = kPage, .count = 8, .max_sequences = 4});
  const int32_t pages[] = {5, 0, 7, 2};
  std::vector<int64_t> slots;
  for (int i = 0; i < kTokens; ++i) slots.push_back(int64_t{pages[i / kPage]} * kPage + i % kPage);
  const int32_t lengths[] = {kTokens};
  Out out(size_t{kLayers} * kQuery * kDim);
  for (int layer = 0; layer < kLayers; ++layer) {
    runtime.append(layer, {Tokens::at(tokens.k, kKv, layer, 0), kTokens, kKv, kDim},
                   {Tokens::at(tokens.v, kKv, layer, 0), kTokens, kKv, kDim}, slots);
    const fasa::BlockTable table = {.pages = pages, .sequences = 1, .columns = 4};
    runtime.attend(layer, {Tokens::at(tokens.q, kQuery, layer, kTokens - 1), 1, kQuery, kDim},
                   table, lengths, {out.data() + layer * kQuery * kDim, 1, kQuery, kDim});
    // Exact attention, in one call and in two.
    Out whole(size_t{kTokens} * kQuery * kDim), rest(size_t{80} * kQuery * kDim);
    runtime.prefill(layer, {Tokens::at(tokens.q, kQuery, layer, 0), kTokens, kQuery, kDim}, table,
                    lengths, lengths, {whole.data(), kTokens, kQuery, kDim});
    const int32_t newest[] = {80};
    runtime.prefill(layer, {Tokens::at(tokens.q, kQuery, layer, kTokens - 80), 80, kQuery, kDim},
                    table, lengths, newest, {rest.data(), 80, kQuery, kDim});
    runtime.synchronize();
    CHECK(std::equal(rest.begin(), rest.end(), whole.end() - 80 * kQuery * kDim));
  }
  CHECK(runtime.held(5, 0) == kPage);
  fasa::Options long_enough = options;
  long_enough.max_context = kTokens;
  const auto sizes = fasa::PagedRuntime::sizes(long_enough, {.size = kPage}, kTokens);
  CHECK(8 * sizes.page.host_rows == runtime.memory().host_rows);
  return out;
}

// Keys and values as [batch, heads, tokens, dim]: strided views of memory laid out as [tokens,
// heads, dim].
Out of_tensors(const fasa::Options& options, Tokens& tokens) {
  const std::vector<int64_t> shape = {1, kKv, kTokens, kDim};
  const std::vector<int64_t> strides = {kTokens * kKv * kDim, kDim, kKv * kDim, 1};
  Out out(size_t{kLayers} * kQuery * kDim);
  for (int layer = 0; layer < kLayers; ++layer) {
    fasa::sparse_decode(options, layer,
                        {Tokens::at(tokens.q, kQuery, layer, kTokens - 1), 1, kQuery, kDim},
                        {Tokens::at(tokens.k, kKv, layer, 0), fasa::DType::kF32, shape, strides},
                        {Tokens::at(tokens.v, kKv, layer, 0), fasa::DType::kF32, shape, strides},
                        {}, {out.data() + layer * kQuery * kDim, 1, kQuery, kDim});
  }
  return out;
}

void check_errors() {
  const std::string said = text_of<fasa::UsageError>([] { fasa::Config{{"fac_tokens", "many"}}; });
  CHECK(said.find("fac_tokens") != std::string::npos);
  CHECK(!text_of<fasa::InputError>([] { fasa::FcMap("no such map.json"); }).empty());
  const std::vector<int64_t> five(5, 1);
  float value = 0;
  CHECK(!text_of<fasa::UsageError>([&] {
           fasa::TensorView(&value, fasa::DType::kF32, five);
         }).empty());
  fasa::Geometry geometry{.layers = 2, .windows = {64}};
  CHECK(!text_of<fasa::UsageError>([&] { fasa::Runtime({.geometry = geometry}); }).empty());
}

}  // namespace

int main() {
  check_errors();
  Tokens tokens;
  for (const char* name : {"cpu", "emulated"}) {
    const fasa::Config config{{"fac_tokens", "64"}, {"device.name", name}};
    CHECK(config.json().find("\"fac_tokens\"") != std::string::npos);
    fasa::Device device(config);
    CHECK(device.name() == name);
    fasa::Geometry geometry{
        .layers = kLayers, .kv_heads = kKv, .query_heads = kQuery, .key_dim = kDim};
    const fasa::Options options{
        .geometry = geometry, .config = &config, .device = &device, .row_dtype = fasa::DType::kF32};
    const Out expected = of_sequences(options, tokens);
    CHECK(of_pages(options, tokens) == expected);
    CHECK(of_tensors(options, tokens) == expected);
    CHECK(device.memory(fasa::MemorySpace::kHost).peak_bytes > 0);
  }
  std::printf("apis, fasa %s\n", fasa::version().c_str());
}
