// Prefilled tokens of the gated delta net, in blocks of kLinearBlock.
#pragma once

#include "kernels/cuda/model/delta_state_inl.h"

namespace fasa::cuda {

// A thread block has some columns of a value head's state and goes through its sequence's blocks of
// tokens. Within one it takes tiles of 16 tokens: what each token adds to the state follows from
// what the state gives for its key and from the tokens before it (a triangular system); its output
// likewise. Sums run in an order that depends on a token's number in its block alone, so that bits
// do not depend on how many tokens follow, nor on the columns of a thread block.
struct DeltaBlocksKernel {
  static constexpr const char* kName = "delta_blocks";
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 2;
  static constexpr int kBlock = kLinearBlock;
  static constexpr int kTile = 16;
  static constexpr int kMaxColumns = 32;
  static constexpr int kWarps = kThreads / simt::kWarpThreads;
  static constexpr int kPerLane = DeltaNetParams::kMaxKeyDim / simt::kWarpThreads;
  static constexpr int kWeights = kBlock + 8;  // between rows of weights: fewer bank conflicts
  // Threads that share a row of products, of the tile's keys and then its queries.
  static constexpr int kSharing = kThreads / (2 * kTile);
  static_assert(2 * kTile * kMaxColumns / 4 <= kThreads && kMaxColumns <= simt::kWarpThreads);

  DeltaState of;
  int columns = kMaxColumns;  // of a thread block, a multiple of 4
  int slices = 1;             // thread blocks of a head

  // Elements between rows of keys: whole quads, in different banks.
  static constexpr int key_stride(int key_dim) { return (key_dim + 3) / 4 * 4 + 4; }
  static constexpr int64_t shared_bytes(int key_dim, int columns) {
    const int64_t keys = int64_t{kBlock + kTile} * key_stride(key_dim);
    const int64_t matrices = int64_t{key_stride(key_dim) - 4 + kBlock} * columns;
    return (keys + matrices + 2 * kTile * kWeights + 3 * kBlock) * int64_t{sizeof(float)};
  }

  FASA_DEVICE void operator()() const {
    const LinearPart& part = of.part(simt::block_y());
    if (part.decodes || part.tokens == 0) return;
    Run run(*this, part);
    run.load_state();
    Tokens block{.open = part.open, .row = part.first};
    int64_t position = part.position;
    const int64_t end = part.position + part.tokens;
    while (position < end) {
      const int64_t cut = ((position - block.open) / kBlock + 1) * kBlock;
      block.fresh = static_cast<int>((cut < end ? cut : end) - position);
      run.through(block);
      position += block.fresh;
      if (position == cut) {
        run.close(block);
        if (part.saved != nullptr && cut == part.saved_at) {
          run.store_state(of.saved_matrix(part, run.head));
        }
      }
      block.row += block.fresh;
      block.open = 0;
    }
    run.store_state(of.matrix(part, run.head));
  }

 private:
  // Tokens of a block that are known.
  struct Tokens {
    int open = 0;     // from the state's memory, first
    int64_t row = 0;  // of the first new one, in the step
    int fresh = 0;    // new ones
    FASA_DEVICE int count() const { return open + fresh; }
  };

  // A thread block's memory and place.
  struct Run {
    const DeltaState& of;
    const LinearPart& part;
    int head, columns, stride, depth;  // depth: key_dim in whole quads
    int64_t first;                     // column
    float *keys, *queries;             // [kBlock, stride], [kTile, stride]
    float* state;                      // [depth, columns]
    float* values;                     // [kBlock, columns]: then what each token adds to the state
    float* weights;  // [2, kTile, kWeights]: of earlier tokens, for the tile's keys and queries
    float *beta, *total, *passed;  // [kBlock]; total: of the decays' logarithms; passed: its exp

    FASA_DEVICE Run(const DeltaBlocksKernel& kernel, const LinearPart& of_part)
        : of(kernel.of),
          part(of_part),
          head(simt::block_x() / kernel.slices),
          columns(kernel.columns),
          stride(key_stride(of.shape().key_dim)),
          depth(stride - 4),
          first(int64_t{simt::block_x() % kernel.slices} * columns),
          keys(reinterpret_cast<float*>(simt::shared_memory())),
          queries(keys + kBlock * stride),
          state(queries + kTile * stride),
          values(state + depth * columns),
          weights(values + kBlock * columns),
          beta(weights + 2 * kTile * kWeights),
          total(beta + kBlock),
          passed(total + kBlock) {}

    // Calls with (row, column) for quads of [rows, columns].
    template <typename Body>
    FASA_DEVICE void for_quads(int rows, const Body& body) const {
      const int quads = columns / 4;
      for (int i = simt::thread_index(); i < rows * quads; i += kThreads) {
        body(i / quads, i % quads * 4);
      }
    }
    FASA_DEVICE bool inside(int column) const { return first + column < of.width(); }

    FASA_DEVICE void load_state() const {
      const float* const from = of.matrix(part, head) + first;
      for_quads(depth, [&](int d, int column) {
        Quad quad;
        const bool known = part.position > 0 && d < of.shape().key_dim && inside(column);
        if (known) quad = Quad::load(from + d * of.width() + column);
        quad.store(state + d * columns + column);
      });
    }
    FASA_DEVICE void store_state(float* to) const {
      for_quads(of.shape().key_dim, [&](int d, int column) {
        if (!inside(column)) return;
        Quad::load(state + d * columns + column).store(to + first + d * of.width() + column);
      });
    }

    FASA_DEVICE DeltaState::Token token(const Tokens& block, int i) const {
      return i < block.open ? of.kept_token(part, i, head)
                            : of.token(block.row + i - block.open, head);
    }

    // The block's outputs, and in `values` what its tokens add to the state.
    FASA_DEVICE void through(const Tokens& block) const {
      const int tiles = (block.count() + kTile - 1) / kTile;
      simt::sync_block();  // the last block is done with the shared memory
      load_keys(block, tiles * kTile);
      load_values(block, tiles * kTile);
      if (simt::warp() == 0) load_gates(block);
      for (int tile = 0; tile < tiles; ++tile) through(block, tile);
    }
    FASA_DEVICE void through(const Tokens& block, int tile) const {
      load_queries(block, tile);
      simt::sync_block();
      weigh(tile);
      const int row = simt::thread_index() / (columns / 4);
      const int column = simt::thread_index() % (columns / 4) * 4;
      const int i = tile * kTile + row % kTile;
      const bool takes_part = row < 2 * kTile;
      const bool of_query = row >= kTile;
      Quad sum;
      if (takes_part) {
        sum = read_state((of_query ? queries + row % kTile * stride : keys + i * stride), column)
                  .times(passed[i]);
      }
      simt::sync_block();
      float* const value = values + i * columns + column;
      if (takes_part && !of_query) {
        Quad rest = Quad::load(value);
        rest.add(-1, sum);
        sum = rest.times(beta[i]);
      }
      if (takes_part) add_values(row, 0, tile * kTile, column, &sum);
      if (takes_part && !of_query) sum.store(value);
      simt::sync_block();
      solve(tile);
      simt::sync_block();
      if (!takes_part || !of_query || i < block.open || i >= block.count()) return;
      add_values(row, tile * kTile, i + 1, column, &sum);
      of.put(block.row + i - block.open, head, first + column, sum);
    }

    // One warp: a vector, divided by its length; nulls: zeros.
    FASA_DEVICE void load_unit(const void* from, int64_t at, float scale, float* to) const {
      float x[kPerLane];
      float squares = 0;
      FASA_UNROLL for (int i = 0; i < kPerLane; ++i) {
        const int d = simt::lane() + i * simt::kWarpThreads;
        const bool known = from != nullptr && d < of.shape().key_dim;
        x[i] = known ? load(of.shape().dtype, from, at + d) : 0;
        squares = simt::fused(x[i], x[i], squares);
      }
      scale *= of.unit_scale(simt::warp_sum(squares));
      FASA_UNROLL for (int i = 0; i < kPerLane; ++i) {
        const int d = simt::lane() + i * simt::kWarpThreads;
        if (d < depth) to[d] = x[i] * scale;
      }
    }
    FASA_DEVICE void load_keys(const Tokens& block, int rows) const {
      for (int i = simt::warp(); i < rows; i += kWarps) {
        const bool known = i < block.count();
        const DeltaState::Token from = token(block, known ? i : 0);
        load_unit(known ? from.keys : nullptr, from.key, 1, keys + i * stride);
      }
    }
    FASA_DEVICE void load_queries(const Tokens& block, int tile) const {
      for (int row = simt::warp(); row < kTile; row += kWarps) {
        const int i = tile * kTile + row;
        const bool known = i >= block.open && i < block.count();
        const int64_t at = known ? token(block, i).query : 0;
        load_unit(known ? of.params.y : nullptr, at, of.query_scale(), queries + row * stride);
      }
    }
    FASA_DEVICE void load_values(const Tokens& block, int rows) const {
      for_quads(rows, [&](int i, int column) {
        Quad quad;
        if (i < block.count()) quad = of.values(token(block, i), first + column);
        quad.store(values + i * columns + column);
      });
    }
    // One warp.
    FASA_DEVICE void load_gates(const Tokens& block) const {
      float before = 0;
      for (int begin = 0; begin < kBlock; begin += simt::kWarpThreads) {
        const int i = begin + simt::lane();
        DeltaGates gates;
        if (i < block.count()) gates = of.gates(token(block, i).gates, head);
        const float sum = before + simt::warp_prefix_sum(gates.decay);
        beta[i] = gates.beta;
        total[i] = sum;
        passed[i] = exponential(sum);
        before = simt::shuffle(sum, simt::kWarpThreads - 1);
      }
    }

    // Weights of the tokens up to the tile's end, for its keys (of earlier ones, negative) and its
    // queries: products with their keys, decayed. A thread has every kSharing-th token of a row.
    FASA_DEVICE void weigh(int tile) const {
      switch (tile) {
        case 0:
          return weigh<kTile / kSharing>(tile);
        case 1:
          return weigh<2 * kTile / kSharing>(tile);
        case 2:
          return weigh<3 * kTile / kSharing>(tile);
        default:
          return weigh<4 * kTile / kSharing>(tile);
      }
    }
    template <int kCount>
    FASA_DEVICE void weigh(int tile) const {
      const int row = simt::thread_index() / kSharing;
      const int turn = simt::thread_index() % kSharing;
      const int i = tile * kTile + row % kTile;
      const bool of_query = row >= kTile;
      const float* const own = of_query ? queries + row % kTile * stride : keys + i * stride;
      float sums[kCount] = {};
      for (int d = 0; d < depth; d += 4) {
        const Quad x = Quad::load(own + d);
        FASA_UNROLL for (int m = 0; m < kCount; ++m) {
          const Quad key = Quad::load(keys + (turn + m * kSharing) * stride + d);
          FASA_UNROLL for (int e = 0; e < 4; ++e) {
            sums[m] = simt::fused(x.of[e], key.of[e], sums[m]);
          }
        }
      }
      FASA_UNROLL for (int m = 0; m < kCount; ++m) {
        const int j = turn + m * kSharing;
        const bool counts = of_query ? j <= i : j < i;
        const float weight = counts ? sums[m] * exponential(total[i] - total[j]) : 0;
        weights[row * kWeights + j] = of_query ? weight : -beta[i] * weight;
      }
    }
    // What the state gives for a key or query.
    FASA_DEVICE Quad read_state(const float* own, int column) const {
      Quad sum;
      for (int d = 0; d < depth; d += 4) {
        const Quad x = Quad::load(own + d);
        FASA_UNROLL for (int e = 0; e < 4; ++e) {
          sum.add(x.of[e], Quad::load(state + (d + e) * columns + column));
        }
      }
      return sum;
    }
    FASA_DEVICE void add_values(int row, int from, int to, int column, Quad* sum) const {
      for (int j = from; j < to; ++j) {
        sum->add(weights[row * kWeights + j], Quad::load(values + j * columns + column));
      }
    }
    // The tile's part of the triangular system, a thread per column.
    FASA_DEVICE void solve(int tile) const {
      const int column = simt::thread_index();
      if (column >= columns) return;
      float* const own = values + tile * kTile * columns + column;
      float x[kTile];
      FASA_UNROLL for (int i = 0; i < kTile; ++i) {
        x[i] = own[i * columns];
        FASA_UNROLL for (int j = 0; j < i; j += 4) {
          const Quad row = Quad::load(weights + i * kWeights + tile * kTile + j);
          FASA_UNROLL for (int e = 0; e < 4; ++e) {
            if (j + e < i) x[i] = simt::fused(row.of[e], x[j + e], x[i]);
          }
        }
      }
      FASA_UNROLL for (int i = 0; i < kTile; ++i) own[i * columns] = x[i];
    }

    // The state behind the block's last token.
    FASA_DEVICE void close(const Tokens& block) const {
      const int last = block.count() - 1;
      simt::sync_block();
      for_quads(block.count(), [&](int i, int column) {
        float* const value = values + i * columns + column;
        Quad::load(value).times(exponential(total[last] - total[i])).store(value);
      });
      simt::sync_block();
      for_quads(depth / 4, [&](int of_four, int column) {
        const int d = of_four * 4;
        float* const to = state + d * columns + column;
        Quad sums[4];
        FASA_UNROLL for (int e = 0; e < 4; ++e) {
          sums[e] = Quad::load(to + e * columns).times(passed[last]);
        }
        for (int i = 0; i <= last; ++i) {
          const Quad key = Quad::load(keys + i * stride + d);
          const Quad value = Quad::load(values + i * columns + column);
          FASA_UNROLL for (int e = 0; e < 4; ++e) sums[e].add(key.of[e], value);
        }
        FASA_UNROLL for (int e = 0; e < 4; ++e) sums[e].store(to + e * columns);
      });
      simt::sync_block();
    }
  };
};

}  // namespace fasa::cuda
