#include "tests/simulation/linear_layers.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/model/linear_calls.h"
#include "tests/support/tape.h"

namespace fasa::testing {
namespace {

std::vector<float> noises(int count, uint64_t seed, float from, float by) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = from + by * noise(seed++);
  return values;
}

}  // namespace

LinearLayers::LinearLayers(const LinearShape& shape)
    : layout_(shape),
      taps_(noises(shape.channels() * shape.taps, 1000, 0, 1)),
      factor_(noises(shape.value_heads, 2000, -0.3f, 0.25f)),
      bias_(noises(shape.value_heads, 3000, 0, 1)),
      norm_(noises(shape.value_dim, 4000, 1, 0.5f)) {}

size_t LinearLayers::token_bytes() const {
  const LinearShape& shape = layout_.shape();
  return static_cast<size_t>(shape.value_width()) * dtype_bytes(shape.dtype);
}

void LinearLayers::run(int layer, std::span<const LinearPart> parts, std::span<const Token> tokens,
                       std::byte* out) const {
  const LinearShape& shape = layout_.shape();
  std::vector<float> x, gates, z;
  const auto take = [&](std::vector<float>& to, const Token& token, TokenPart part, int width) {
    const float* const values = token_values(token.writer, layer, token.position, part);
    to.insert(to.end(), values, values + width);
  };
  for (const Token& token : tokens) {
    take(x, token, TokenPart::kKey, shape.channels());
    take(gates, token, TokenPart::kValue, 2 * shape.value_heads);
    take(z, token, TokenPart::kQuery, shape.value_width());
  }
  std::vector<std::byte> y(tokens.size() * static_cast<size_t>(shape.channels()) *
                           dtype_bytes(shape.dtype));
  for_each_wave(parts, [&](size_t first, size_t count) {
    const std::span<const LinearPart> wave = parts.subspan(first, count);
    cpu::run_linear(ConvolveParams{.layout = &layout_,
                                   .layer = layer,
                                   .parts = wave,
                                   .x = x.data(),
                                   .x_stride = shape.channels(),
                                   .weights = taps_.data(),
                                   .y = y.data()});
    cpu::run_linear(DeltaNetParams{.layout = &layout_,
                                   .layer = layer,
                                   .parts = wave,
                                   .y = y.data(),
                                   .gates = gates.data(),
                                   .factor = factor_.data(),
                                   .bias = bias_.data(),
                                   .z = z.data(),
                                   .z_stride = shape.value_width(),
                                   .norm = norm_.data(),
                                   .eps = 1e-6f,
                                   .out = out});
  });
}

std::vector<std::vector<std::byte>> LinearLayers::attend(std::span<const uint8_t> history,
                                                         std::span<const uint8_t> decoded,
                                                         int64_t start) const {
  std::vector<std::vector<std::byte>> outputs;
  std::vector<std::byte> state(static_cast<size_t>(layout_.bytes()));
  std::vector<Token> tokens;
  for (size_t i = 0; i < history.size(); ++i) {
    tokens.push_back({history[i], static_cast<int64_t>(i)});
  }
  for (int layer = 0; layer < layers(); ++layer) {
    std::vector<std::byte> out(history.size() * token_bytes());
    int open = 0;  // tokens of the block that the run before left open
    for (size_t begin = 0; begin < history.size();) {
      const auto next = std::find_if(decoded.begin() + static_cast<ptrdiff_t>(begin), decoded.end(),
                                     [&](uint8_t how) { return how != decoded[begin]; });
      const auto end = static_cast<size_t>(next - decoded.begin());
      const LinearPart part{.tokens = static_cast<int64_t>(end - begin),
                            .decodes = decoded[begin] != 0,
                            .position = static_cast<int64_t>(begin),
                            .open = open,
                            .state = state.data()};
      run(layer, {&part, 1}, std::span(tokens).subspan(begin, end - begin),
          out.data() + begin * token_bytes());
      const size_t cut = std::max(begin, end / kLinearBlock * kLinearBlock);
      open = part.decodes ? 0 : static_cast<int>(end - cut);
      begin = end;
    }
    out.erase(out.begin(), out.begin() + start * static_cast<ptrdiff_t>(token_bytes()));
    outputs.push_back(std::move(out));
  }
  return outputs;
}

}  // namespace fasa::testing
