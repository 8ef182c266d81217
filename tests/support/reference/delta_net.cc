#include "tests/support/reference/delta_net.h"

#include <cmath>
#include <utility>

namespace fasa::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// x [size], divided by its length.
std::vector<double> unit(const double* x, int size) {
  constexpr double kEps = 1e-6;  // as in transformers, whatever the config says
  double sum = 0;
  for (int i = 0; i < size; ++i) sum += x[i] * x[i];
  std::vector<double> out(x, x + size);
  for (double& value : out) value /= std::sqrt(sum + kEps);
  return out;
}

}  // namespace

DeltaNet::DeltaNet(const LinearShape& shape, Weights weights)
    : shape_(shape),
      weights_(std::move(weights)),
      inputs_(static_cast<size_t>(shape.taps - 1),
              std::vector<double>(static_cast<size_t>(shape.channels()))),
      state_(static_cast<size_t>(shape.value_heads) * static_cast<size_t>(shape.key_dim) *
             static_cast<size_t>(shape.value_dim)) {}

std::vector<double> DeltaNet::convolve(const float* x) {
  const auto channels = static_cast<size_t>(shape_.channels());
  const auto taps = static_cast<size_t>(shape_.taps);
  inputs_.emplace_back(x, x + channels);
  std::vector<double> y(channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < taps; ++i) {
      y[c] += static_cast<double>(weights_.taps[c * taps + i]) * inputs_[i][c];
    }
    y[c] *= sigmoid(y[c]);
  }
  inputs_.erase(inputs_.begin());
  return y;
}

void DeltaNet::head(int head, const std::vector<double>& y, const float* gates, double* out) {
  const int key_dim = shape_.key_dim, value_dim = shape_.value_dim;
  const int key_head = shape_.heads_by_turns ? head % shape_.key_heads : head / shape_.sharing();
  std::vector<double> q = unit(y.data() + key_head * key_dim, key_dim);
  const std::vector<double> k = unit(y.data() + shape_.key_width() + key_head * key_dim, key_dim);
  const double* const v = y.data() + 2 * shape_.key_width() + head * value_dim;
  for (double& value : q) value /= std::sqrt(static_cast<double>(key_dim));
  const auto at = static_cast<size_t>(head);
  const double beta = sigmoid(static_cast<double>(gates[head]));
  const double a = static_cast<double>(gates[shape_.value_heads + head]);
  const double decay = std::exp(static_cast<double>(weights_.factor[at]) *
                                softplus(a + static_cast<double>(weights_.bias[at])));
  double* const state = state_.data() + at * static_cast<size_t>(key_dim * value_dim);
  for (int j = 0; j < value_dim; ++j) {
    double read = 0;
    for (int i = 0; i < key_dim; ++i) {
      state[i * value_dim + j] *= decay;
      read += state[i * value_dim + j] * k[static_cast<size_t>(i)];
    }
    const double delta = beta * (v[j] - read);
    out[j] = 0;
    for (int i = 0; i < key_dim; ++i) {
      state[i * value_dim + j] += k[static_cast<size_t>(i)] * delta;
      out[j] += state[i * value_dim + j] * q[static_cast<size_t>(i)];
    }
  }
}

std::vector<double> DeltaNet::next(const float* x, const float* gates, const float* z) {
  const std::vector<double> y = convolve(x);
  std::vector<double> out(static_cast<size_t>(shape_.value_width()));
  for (int head = 0; head < shape_.value_heads; ++head) {
    double* const o = out.data() + head * shape_.value_dim;
    this->head(head, y, gates, o);
    double squares = 0;
    for (int j = 0; j < shape_.value_dim; ++j) squares += o[j] * o[j];
    const double scale =
        1 / std::sqrt(squares / shape_.value_dim + static_cast<double>(weights_.eps));
    for (int j = 0; j < shape_.value_dim; ++j) {
      const double gate = static_cast<double>(z[head * shape_.value_dim + j]);
      o[j] *=
          scale * static_cast<double>(weights_.norm[static_cast<size_t>(j)]) * gate * sigmoid(gate);
    }
  }
  return out;
}

}  // namespace fasa::reference
