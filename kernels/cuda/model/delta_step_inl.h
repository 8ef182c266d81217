// Tokens of the gated delta net one by one: decoded ones, and before them those of an open block or
// those that wait, which also come before prefilled ones. Drafts do not change the state in memory.
#pragma once

#include "kernels/cuda/model/delta_state_inl.h"

namespace fasa::cuda {

// A block has some columns of a value head's state, which it keeps in registers from its first
// token to its last. The columns are independent, and many blocks fill a GPU in a step of one
// sequence. A block's loads of the state are all in flight at once.
struct DeltaStepKernel {
  static constexpr const char* kName = "delta_step";
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 3;
  static constexpr int kColumns = 32;
  static constexpr int kQuads = kColumns / 4;            // threads side by side in a row
  static constexpr int kRowsAtOnce = kThreads / kQuads;  // of the state
  static constexpr int kMaxDim = DeltaNetParams::kMaxKeyDim;
  static constexpr int kRows = kMaxDim / kRowsAtOnce;  // of a thread
  static constexpr int kWarps = kThreads / simt::kWarpThreads;
  static constexpr int kPerLane = kMaxDim / simt::kWarpThreads;

  DeltaState of;
  int slices = 1;  // blocks of a head

  struct Shared {
    float key[kMaxDim], query[kMaxDim];  // with the lengths that the rule wants
    float key_query;                     // their product
    DeltaGates gates;
    Quad by_key[kWarps][kQuads], by_query[kWarps][kQuads];  // products with a warp's rows
  };

  FASA_DEVICE void operator()() const {
    const LinearPart part = of.part(simt::block_y());
    const int64_t tokens = part.decodes ? part.tokens : 0;
    const int64_t before = part.waiting + (part.decodes ? part.open : 0);
    if (tokens + before == 0 || part.tokens == 0) return;
    const int64_t stay = part.decodes ? tokens - part.drafts : 0;
    const int head = simt::block_x() / slices;
    const int quad = simt::thread_index() % kQuads;
    const int64_t column = int64_t{simt::block_x() % slices} * kColumns + 4 * quad;
    const bool inside = column < of.width();
    float* const state = of.matrix(part, head) + column;
    Quad rows[kRows];
    FASA_UNROLL for (int i = 0; i < kRows; ++i) {
      const bool known = inside && row(i) < key_dim() && part.position > 0;
      if (known) rows[i] = Quad::load(state + row(i) * of.width());
    }
    for (int64_t i = -before; i < tokens; ++i) {
      const bool kept = i < 0;
      const DeltaState::Token token =
          kept ? of.kept_token(part, before + i, head) : of.token(part.first + i, head);
      const Quad o = advance(token, head, column, !kept, rows);
      if (!kept && simt::thread_index() < kQuads) of.put(part.first + i, head, column, o);
      if (i + 1 != stay) continue;
      FASA_UNROLL for (int j = 0; j < kRows; ++j) {
        if (inside && row(j) < key_dim()) rows[j].store(state + row(j) * of.width());
      }
    }
  }

 private:
  FASA_DEVICE int key_dim() const { return of.shape().key_dim; }
  FASA_DEVICE static int row(int i) { return simt::thread_index() / kQuads + i * kRowsAtOnce; }

  // The state behind a token, and what its query gives: o = Sᵀq of the new state S, computed as
  // decay · (the old state)ᵀq + (k · q) d, so that both products are of one pass over the state.
  FASA_DEVICE Quad advance(const DeltaState::Token& token, int head, int64_t column, bool queries,
                           Quad* rows) const {
    auto& shared = simt::shared<Shared>();
    if (simt::warp() == 0) make_units(token, queries);
    if (simt::thread_index() == simt::kWarpThreads) shared.gates = of.gates(token.gates, head);
    const Quad v = of.values(token, column);
    simt::sync_block();
    Quad by_key, by_query;
    multiply(rows, &by_key, &by_query);
    const float decay = exponential(shared.gates.decay);
    const float beta = shared.gates.beta;
    Quad delta;
    FASA_UNROLL for (int i = 0; i < 4; ++i) {
      delta.of[i] = beta * (v.of[i] - decay * by_key.of[i]);
    }
    FASA_UNROLL for (int i = 0; i < kRows; ++i) {
      if (row(i) >= key_dim()) continue;
      rows[i] = rows[i].times(decay);
      rows[i].add(shared.key[row(i)], delta);
    }
    Quad o = by_query.times(decay);
    o.add(shared.key_query, delta);
    simt::sync_block();  // the next token overwrites the shared memory
    return o;
  }

  // One warp. Without a query, its place has zeros.
  FASA_DEVICE void make_units(const DeltaState::Token& token, bool queries) const {
    auto& shared = simt::shared<Shared>();
    float key[kPerLane], query[kPerLane];
    float keys = 0, products = 0, squares = 0;
    FASA_UNROLL for (int i = 0; i < kPerLane; ++i) {
      const int d = simt::lane() + i * simt::kWarpThreads;
      const bool inside = d < key_dim();
      key[i] = inside ? load(of.shape().dtype, token.keys, token.key + d) : 0;
      query[i] = inside && queries ? load(of.shape().dtype, of.params.y, token.query + d) : 0;
      keys = simt::fused(key[i], key[i], keys);
      products = simt::fused(key[i], query[i], products);
      squares = simt::fused(query[i], query[i], squares);
    }
    const float key_scale = of.unit_scale(simt::warp_sum(keys));
    const float query_scale = of.query_scale() * of.unit_scale(simt::warp_sum(squares));
    products = simt::warp_sum(products);
    FASA_UNROLL for (int i = 0; i < kPerLane; ++i) {
      const int d = simt::lane() + i * simt::kWarpThreads;
      shared.key[d] = key[i] * key_scale;
      shared.query[d] = query[i] * query_scale;
    }
    if (simt::lane() == 0) shared.key_query = products * key_scale * query_scale;
  }

  // Products of the state's columns with the key and the query, the same in all threads of a quad.
  FASA_DEVICE void multiply(const Quad* rows, Quad* by_key, Quad* by_query) const {
    auto& shared = simt::shared<Shared>();
    FASA_UNROLL for (int i = 0; i < kRows; ++i) {
      if (row(i) >= key_dim()) continue;
      by_key->add(shared.key[row(i)], rows[i]);
      by_query->add(shared.query[row(i)], rows[i]);
    }
    FASA_UNROLL for (int lanes = kQuads; lanes < simt::kWarpThreads; lanes *= 2) {
      FASA_UNROLL for (int i = 0; i < 4; ++i) {
        by_key->of[i] += simt::shuffle_xor(by_key->of[i], lanes);
        by_query->of[i] += simt::shuffle_xor(by_query->of[i], lanes);
      }
    }
    const int quad = simt::thread_index() % kQuads;
    if (simt::lane() < kQuads) {
      shared.by_key[simt::warp()][quad] = *by_key;
      shared.by_query[simt::warp()][quad] = *by_query;
    }
    simt::sync_block();
    *by_key = *by_query = {};
    for (int warp = 0; warp < kWarps; ++warp) {
      by_key->add(1, shared.by_key[warp][quad]);
      by_query->add(1, shared.by_query[warp][quad]);
    }
  }
};

}  // namespace fasa::cuda
