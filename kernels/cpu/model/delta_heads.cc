#include "kernels/cpu/model/delta_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fasa::cpu {
namespace {

constexpr int64_t kBlock = kLinearBlock;

// As in transformers, whatever the config says.
constexpr float kUnitEps = 1e-6f;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

void load_elements(DType dtype, const void* data, int64_t at, int64_t count, float* out) {
  if (dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(data) + at, count, out);
    return;
  }
  const uint16_t* const bits = static_cast<const uint16_t*>(data) + at;
  for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(bits[i]);
}

void store_elements(DType dtype, const float* x, int64_t count, void* data, int64_t at) {
  if (dtype == DType::kF32) {
    std::copy_n(x, count, static_cast<float*>(data) + at);
    return;
  }
  uint16_t* const bits = static_cast<uint16_t*>(data) + at;
  for (int64_t i = 0; i < count; ++i) bits[i] = bf16_from_f32(x[i]);
}

float sum_of_squares(const float* x, int64_t size) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += x[i] * x[i];
  return sum;
}

void make_unit(float* x, int64_t size, float factor) {
  const float scale = factor / std::sqrt(sum_of_squares(x, size) + kUnitEps);
  for (int64_t i = 0; i < size; ++i) x[i] *= scale;
}

float* row(std::vector<float>& matrix, int64_t at, int64_t stride) {
  return matrix.data() + at * stride;
}

}  // namespace

void DeltaScratch::fit(const LinearLayout& layout) {
  const auto grow = [](std::vector<float>& memory, int64_t elements) {
    if (std::ssize(memory) < elements) memory.resize(static_cast<size_t>(elements));
  };
  const int64_t of_keys = kBlock * layout.shape().key_dim;
  for (std::vector<float>* memory : {&keys, &turned, &queries, &weights}) grow(*memory, of_keys);
  for (std::vector<float>* memory : {&key_scores, &scores}) grow(*memory, kBlock * kBlock);
  for (std::vector<float>* memory : {&values, &read}) grow(*memory, kBlock * layout.value_stride());
  grow(drafted, layout.shape().sharing() * layout.head_elements());
}

void DeltaHeads::run(const LinearPart& part, int key_head) {
  if (part.position == 0) {
    for (int i = 0; i < shape_.sharing(); ++i) {
      std::fill_n(state_of(part, shape_.value_head(key_head, i)), params_.layout->head_elements(),
                  0.0f);
    }
  }
  if (part.waiting > 0) take_waiting(part, key_head);
  if (part.decodes) {
    decode(part, key_head);
  } else {
    prefill(part, key_head);
  }
}

void DeltaHeads::load_row(int64_t at, int64_t channel, int64_t count, float* out) const {
  load_elements(shape_.dtype, params_.y, at * shape_.channels() + channel, count, out);
}

// Keys and queries of a block, and their products.
void DeltaHeads::load_keys(const Block& block) {
  const int64_t dim = shape_.key_dim;
  const int64_t channel = block.key_head * dim;
  const std::byte* const kept = memory(*block.part) + params_.layout->keys();
  const float query_scale = 1 / std::sqrt(static_cast<float>(dim));
  std::fill(scratch_.turned.begin(), scratch_.turned.end(), 0.0f);
  for (int64_t i = 0; i < block.tokens(); ++i) {
    float* const key = row(scratch_.keys, i, dim);
    if (i < block.open) {
      load_elements(shape_.dtype, kept, i * shape_.key_width() + channel, dim, key);
    } else {
      const int64_t fresh = i - block.open;
      load_row(block.row + fresh, shape_.key_width() + channel, dim, key);
      load_row(block.row + fresh, channel, dim, row(scratch_.queries, fresh, dim));
      make_unit(row(scratch_.queries, fresh, dim), dim, query_scale);
    }
    make_unit(key, dim, 1);
    for (int64_t d = 0; d < dim; ++d) scratch_.turned[static_cast<size_t>(d * kBlock + i)] = key[d];
  }
  const auto multiply = [&](const std::vector<float>& a, int64_t rows, std::vector<float>& out) {
    bodies_.multiply({.rows = rows,
                      .depth = dim,
                      .columns = kBlock,
                      .a = a.data(),
                      .a_stride = dim,
                      .b = scratch_.turned.data(),
                      .b_stride = kBlock,
                      .out = out.data(),
                      .out_stride = kBlock});
  };
  multiply(scratch_.keys, block.tokens(), scratch_.key_scores);
  multiply(scratch_.queries, block.fresh, scratch_.scores);
}

void DeltaHeads::load_values(const Block& block, int head) {
  const int64_t dim = shape_.value_dim;
  const std::byte* const kept = memory(*block.part) + params_.layout->values();
  for (int64_t i = 0; i < block.tokens(); ++i) {
    float* const value = row(scratch_.values, i, width_);
    if (i < block.open) {
      load_elements(shape_.dtype, kept, i * shape_.value_width() + head * dim, dim, value);
    } else {
      load_row(block.row + i - block.open, 2 * shape_.key_width() + head * dim, dim, value);
    }
    std::fill(value + dim, value + width_, 0.0f);
  }
}

void DeltaHeads::set_gates(int64_t at, float b, float a, int head) {
  scratch_.beta[at] = sigmoid(b);
  scratch_.decay[at] = params_.factor[head] * softplus(a + params_.bias[head]);
}

void DeltaHeads::load_gates(const Block& block, int head) {
  const int64_t width = 2 * int64_t{shape_.value_heads};
  const auto* const kept =
      reinterpret_cast<const float*>(memory(*block.part) + params_.layout->gates());
  float total = 0;
  for (int64_t i = 0; i < block.tokens(); ++i) {
    const float* const gates =
        i < block.open ? kept + i * width : params_.gates + (block.row + i - block.open) * width;
    set_gates(i, gates[head], gates[shape_.value_heads + head], head);
    total += scratch_.decay[i];
    scratch_.total[i] = total;
  }
}

// Replaces the values by what each token adds to the state: the rows of a triangular system, one
// after the other, so that a row does not depend on later ones.
void DeltaHeads::solve(const Block& block, const float* state) {
  const int64_t tokens = block.tokens();
  bodies_.multiply({.rows = tokens,
                    .depth = shape_.key_dim,
                    .columns = width_,
                    .a = scratch_.keys.data(),
                    .a_stride = shape_.key_dim,
                    .b = state,
                    .b_stride = width_,
                    .out = scratch_.read.data(),
                    .out_stride = width_});
  float shares[kBlock];
  for (int64_t i = 0; i < tokens; ++i) {
    const auto at = static_cast<size_t>(i);
    const float beta = scratch_.beta[at];
    const float* const scores = row(scratch_.key_scores, i, kBlock);
    for (int64_t j = 0; j < i; ++j) {
      shares[j] = -beta * scores[j] * std::exp(scratch_.total[at] - scratch_.total[j]);
    }
    float* const value = row(scratch_.values, i, width_);
    const float* const read = row(scratch_.read, i, width_);
    const float passed = std::exp(scratch_.total[at]);
    for (int64_t c = 0; c < width_; ++c) value[c] = beta * (value[c] - passed * read[c]);
    bodies_.multiply({.rows = 1,
                      .depth = i,
                      .columns = width_,
                      .a = shares,
                      .b = scratch_.values.data(),
                      .b_stride = width_,
                      .scale = 1,
                      .out = value});
  }
}

// Outputs of the new tokens.
void DeltaHeads::attend(const Block& block, int head, const float* state) {
  bodies_.multiply({.rows = block.fresh,
                    .depth = shape_.key_dim,
                    .columns = width_,
                    .a = scratch_.queries.data(),
                    .a_stride = shape_.key_dim,
                    .b = state,
                    .b_stride = width_,
                    .out = scratch_.read.data(),
                    .out_stride = width_});
  float shares[kBlock];
  for (int64_t fresh = 0; fresh < block.fresh; ++fresh) {
    const int64_t i = block.open + fresh;
    const float total = scratch_.total[i];
    const float* const scores = row(scratch_.scores, fresh, kBlock);
    for (int64_t j = 0; j <= i; ++j) {
      shares[j] = scores[j] * std::exp(total - scratch_.total[j]);
    }
    float* const out = row(scratch_.read, fresh, width_);
    bodies_.multiply({.rows = 1,
                      .depth = i + 1,
                      .columns = width_,
                      .a = shares,
                      .b = scratch_.values.data(),
                      .b_stride = width_,
                      .scale = std::exp(total),
                      .out = out});
    write(block.row + fresh, head, out);
  }
}

// The state behind the block's last token.
void DeltaHeads::close(const Block& block, float* state) {
  const int64_t tokens = block.tokens();
  const float total = scratch_.total[tokens - 1];
  float shares[kBlock];
  for (int64_t i = 0; i < tokens; ++i) {
    shares[i] = std::exp(total - scratch_.total[i]);
  }
  for (int64_t d = 0; d < shape_.key_dim; ++d) {
    const float* const from = row(scratch_.turned, d, kBlock);
    float* const to = row(scratch_.weights, d, kBlock);
    for (int64_t i = 0; i < tokens; ++i) to[i] = from[i] * shares[i];
  }
  bodies_.multiply({.rows = shape_.key_dim,
                    .depth = tokens,
                    .columns = width_,
                    .a = scratch_.weights.data(),
                    .a_stride = kBlock,
                    .b = scratch_.values.data(),
                    .b_stride = width_,
                    .scale = std::exp(total),
                    .out = state,
                    .out_stride = width_});
}

// Copies the new tokens' inputs to the open block.
void DeltaHeads::keep_open(const Block& block) const {
  std::byte* const kept = memory(*block.part);
  const int64_t bytes = dtype_bytes(shape_.dtype);
  const auto copy = [&](int64_t row, int64_t channel, int64_t count, std::byte* to) {
    const auto* const y = static_cast<const std::byte*>(params_.y);
    std::memcpy(to, y + (row * shape_.channels() + channel) * bytes,
                static_cast<size_t>(count * bytes));
  };
  const int64_t key = int64_t{block.key_head} * shape_.key_dim;
  const int64_t value_dim = shape_.value_dim;
  const int64_t gates = 2 * int64_t{shape_.value_heads};
  for (int64_t fresh = 0; fresh < block.fresh; ++fresh) {
    const int64_t i = block.open + fresh;
    const int64_t row = block.row + fresh;
    copy(row, shape_.key_width() + key, shape_.key_dim,
         kept + params_.layout->keys() + (i * shape_.key_width() + key) * bytes);
    auto* const to = reinterpret_cast<float*>(kept + params_.layout->gates()) + i * gates;
    const float* const from = params_.gates + row * gates;
    for (int j = 0; j < shape_.sharing(); ++j) {
      const int64_t head = shape_.value_head(block.key_head, j);
      copy(row, 2 * shape_.key_width() + head * value_dim, value_dim,
           kept + params_.layout->values() + (i * shape_.value_width() + head * value_dim) * bytes);
      to[head] = from[head];
      to[shape_.value_heads + head] = from[shape_.value_heads + head];
    }
  }
}

void DeltaHeads::save(const LinearPart& part, int key_head) const {
  auto* const to =
      reinterpret_cast<float*>(part.saved + params_.layer * params_.layout->cut_bytes());
  const int64_t elements = params_.layout->head_elements();
  for (int i = 0; i < shape_.sharing(); ++i) {
    const int head = shape_.value_head(key_head, i);
    std::copy_n(state_of(part, head), elements, to + head * elements);
  }
}

void DeltaHeads::prefill(const LinearPart& part, int key_head) {
  Block block{.part = &part, .key_head = key_head, .open = part.open, .row = part.first};
  int64_t position = part.position;
  const int64_t end = part.position + part.tokens;
  while (position < end) {
    const int64_t cut = ((position - block.open) / kBlock + 1) * kBlock;
    block.fresh = std::min(cut, end) - position;
    load_keys(block);
    for (int i = 0; i < shape_.sharing(); ++i) {
      const int head = shape_.value_head(key_head, i);
      float* const state = state_of(part, head);
      load_values(block, head);
      load_gates(block, head);
      solve(block, state);
      attend(block, head, state);
      if (position + block.fresh == cut) close(block, state);
    }
    position += block.fresh;
    if (position < cut) return keep_open(block);
    if (part.saved != nullptr && cut == part.saved_at) save(part, key_head);
    block.row += block.fresh;
    block.open = 0;
  }
}

void DeltaHeads::advance(int64_t at, const float* query, const float* key, float* state) {
  bodies_.step({.key_dim = shape_.key_dim,
                .columns = width_,
                .state = state,
                .q = query,
                .k = key,
                .v = row(scratch_.values, at, width_),
                .decay = std::exp(scratch_.decay[at]),
                .beta = scratch_.beta[at],
                .out = scratch_.read.data()});
}

// Advances the states by the tokens that wait.
void DeltaHeads::take_waiting(const LinearPart& part, int key_head) {
  const Block waiting{.part = &part, .key_head = key_head, .open = part.waiting};
  load_keys(waiting);
  for (int i = 0; i < shape_.sharing(); ++i) {
    const int head = shape_.value_head(key_head, i);
    load_values(waiting, head);
    load_gates(waiting, head);
    for (int64_t at = 0; at < part.waiting; ++at) {
      const float* const key = row(scratch_.keys, at, shape_.key_dim);
      advance(at, key, key, state_of(part, head));  // the output is not used
    }
  }
}

void DeltaHeads::close_open(const LinearPart& part, int key_head) {
  const Block open{.part = &part, .key_head = key_head, .open = part.open};
  load_keys(open);
  for (int i = 0; i < shape_.sharing(); ++i) {
    const int head = shape_.value_head(key_head, i);
    load_values(open, head);
    load_gates(open, head);
    solve(open, state_of(part, head));
    close(open, state_of(part, head));
  }
}

// Drafts advance a copy of the states.
void DeltaHeads::decode(const LinearPart& part, int key_head) {
  if (part.open > 0) close_open(part, key_head);
  const int64_t key_dim = shape_.key_dim, elements = params_.layout->head_elements();
  const float query_scale = 1 / std::sqrt(static_cast<float>(key_dim));
  float* const key = scratch_.keys.data();
  float* const query = scratch_.queries.data();
  const int64_t drafts = part.first + part.tokens - part.drafts;
  for (int64_t token = part.first; token < part.first + part.tokens; ++token) {
    load_row(token, int64_t{key_head} * key_dim, key_dim, query);
    load_row(token, shape_.key_width() + int64_t{key_head} * key_dim, key_dim, key);
    make_unit(query, key_dim, query_scale);
    make_unit(key, key_dim, 1);
    for (int i = 0; i < shape_.sharing(); ++i) {
      const int head = shape_.value_head(key_head, i);
      const Block one{.part = &part, .key_head = key_head, .row = token, .fresh = 1};
      load_values(one, head);
      load_gates(one, head);
      float* const drafted = row(scratch_.drafted, i, elements);
      if (token == drafts) std::copy_n(state_of(part, head), elements, drafted);
      advance(0, query, key, token < drafts ? state_of(part, head) : drafted);
      write(token, head, scratch_.read.data());
    }
  }
  keep_open({.part = &part, .key_head = key_head, .row = drafts, .fresh = part.drafts});
}

// The gated norm of a head's output.
void DeltaHeads::write(int64_t row, int head, const float* o) const {
  const int64_t dim = shape_.value_dim;
  const float* const z = params_.z + row * params_.z_stride + head * dim;
  const float mean = sum_of_squares(o, dim) / static_cast<float>(dim);
  const float scale = 1 / std::sqrt(mean + params_.eps);
  const int64_t at = row * shape_.value_width() + head * dim;
  constexpr int64_t kChunk = 64;
  float normed[kChunk];
  for (int64_t from = 0; from < dim; from += kChunk) {
    const int64_t count = std::min(kChunk, dim - from);
    for (int64_t i = 0; i < count; ++i) {
      const float gate = z[from + i];
      normed[i] = o[from + i] * scale * params_.norm[from + i] * gate * sigmoid(gate);
    }
    store_elements(shape_.dtype, normed, count, params_.out, at + from);
  }
}

}  // namespace fasa::cpu
