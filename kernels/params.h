// Parameters of the cache kernels: plain structs, passed by value, with pointers into memory that
// the kernel's device can reach. The caller checks shapes, reserves memory and keeps everything
// alive until the stream has passed the call. Each call processes one layer and all sequences of
// the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/layout.h"
#include "kernels/low_bit_pages.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

enum class StepMode : int32_t {
  kDecode,   // selected attention, as if each new token came alone
  kPrefill,  // exact causal attention
};

// How kernels reach a sequence's rows.
enum class RowAccess : uint8_t {
  kLocal,     // in place, in the row blocks
  kOverLink,  // on the host, moved over the link; attention never reads the row blocks
};

// One sequence's part of a step; an array of these lies in device memory.
struct SequenceDesc {
  StepMode mode = StepMode::kDecode;
  int32_t first_token = 0;  // its first row in the step's tensors
  int32_t tokens = 0;       // its new tokens
  int32_t start = 0;        // position of the first new token
  // Tokens of the step before these: then `start` is not the committed length, and their rows are
  // among the protected ones.
  int32_t earlier = 0;
  std::byte* const* slice_blocks = nullptr;  // one per page that is or will be sealed
  std::byte* const* row_blocks = nullptr;    // in host or device memory
  // Blocks on the host that new rows are written back to; null: the row blocks.
  std::byte* const* home_blocks = nullptr;
  RowAccess access = RowAccess::kLocal;
  // Pages with rows on the host that the device has a copy of, block for block: one entry for each
  // of the first `device_row_pages` pages, null = none. All rows of such a page are in its copy.
  std::byte* const* device_row_blocks = nullptr;
  int32_t device_row_pages = 0;
  int32_t step_number = 0;              // this step's, the same for all its sequences
  std::byte* tail = nullptr;            // CacheLayout: tail; null: the sequence has no slices
  std::byte* protected_rows = nullptr;  // rows over the link only, else null
  std::byte* hot = nullptr;             // hot rows; null: none
  int32_t* hot_table = nullptr;
  int32_t hot_rows = 0;  // slots per head
  // Prefill with rows over the link: buffer for the new rows of the even layers, from the page that
  // holds `start` on: [page][kv_head][kPageTokens][row_bytes]. StepParams::write_back_offset is the
  // offset of a layer's buffer.
  std::byte* write_back_buffer = nullptr;

  constexpr int32_t end() const { return start + tokens; }
  // Whether its row is among the protected rows, if the sequence has any.
  constexpr bool is_protected(const CacheLayout& layout, int32_t position) const {
    const int32_t newest = mode == StepMode::kDecode ? start + 1 - earlier : end();
    return position < layout.sinks || position >= newest - layout.recent;
  }
  constexpr std::byte* home_block(int32_t page) const {
    return home_blocks != nullptr ? home_blocks[page] : row_blocks[page];
  }
  constexpr std::byte* device_row_block(int32_t page) const {  // or null
    return page < device_row_pages ? device_row_blocks[page] : nullptr;
  }
  // Pages that TIP reads as codes when the last of these tokens is attended to; it reads the rest
  // from the tail.
  constexpr int32_t sealed_pages() const { return (end() - 1) / kPageTokens; }
};

// Work of a kernel, for the emulated device's clock and for the counters.
struct KernelWork {
  uint64_t device_bytes = 0;       // read and written in device memory
  uint64_t h2d_bytes = 0;          // over the link, host to device
  uint64_t d2h_bytes = 0;          // over the link, device to host
  uint64_t bytes_before_link = 0;  // of device_bytes, moved before link transfers are known
  uint64_t operations = 0;         // of matrix products, where they may take longer than the bytes
};

// KV heads of a layer.
struct HeadSpan {
  int begin = 0;
  int end = 0;  // 0: the layer's last KV head

  constexpr bool operator==(const HeadSpan&) const = default;
};

struct StepParams {
  CacheLayout layout;
  const SequenceDesc* sequences = nullptr;
  int count = 0;
  // Descriptors in a row that are tokens of one sequence, one after the other, all in one page:
  // kernels may read a page once for all of them. Those that take no part come last.
  int together = 1;
  int layer = 0;   // that stores the rows, in the layout
  int sharer = 0;  // n: the n-th of CacheLayout::sharers attends to them; 0: `layer` itself
  int64_t write_back_offset = 0;  // bytes from SequenceDesc::write_back_buffer to this layer's
  // Key dimensions in the slice of this layer, [kv_heads][slice.dims], the two dimensions of a
  // chunk side by side.
  const int16_t* slice_dims = nullptr;
  // ALiBi slopes, [query_heads], in device memory; null: no ALiBi. slope · (key position - query
  // position) is added to every q·k before the scale.
  const float* slopes = nullptr;
  // Soft cap of scores, applied after ALiBi and before the scale: score_cap * tanh(s / score_cap).
  // 0: no cap.
  float score_cap = 0;
  // For select, resolve, fetch and attend: the KV heads that this call processes; arrays are for
  // all heads.
  HeadSpan heads = {};

  // Index of the attending layer among all of the layout, with the sharers.
  constexpr int attending_layer() const { return layer + sharer; }
  constexpr int first_head() const { return heads.begin; }
  constexpr int head_count() const {
    return (heads.end == 0 ? layout.kv_heads : heads.end) - heads.begin;
  }
  // Address in the write-back buffer of a new row of a prefill with rows on the host.
  constexpr std::byte* write_back_row(const SequenceDesc& desc, int head, int position) const {
    const int64_t page = position / kPageTokens - desc.start / kPageTokens;
    return desc.write_back_buffer + write_back_offset +
           (page * layout.kv_heads + head) * layout.row_head_bytes() +
           position % kPageTokens * layout.row.bytes();
  }
  // Index among count x kv_heads of the i-th of count x head_count() heads.
  constexpr int head_index(int i) const {
    return i / head_count() * layout.kv_heads + heads.begin + i % head_count();
  }
};

// Stores k and v as rows and slices. With local rows, new rows go to the row blocks. With rows over
// the link they go to the protected rows (decode), or to the write-back buffer and, if they
// are protected, to the protected rows (prefill). A new row is also written to its page's device
// copy, if there is one. New slices go to the tail. When a page's last token arrives, the page is
// sealed: its codes are made from the tail's precision and written to its slice block, however its
// tokens were split over steps. Without a tail there are only rows. k and v are rounded to the
// row's dtype, and the decoded row to the tail's dtype. Value codes, if the layout has them, are
// made from the row's value in the same way. Without k and v, the tokens' local rows are in
// place already and only slices are made.
struct AppendParams {
  static constexpr const char* kName = "append";
  StepParams step;
  ConstTensorView k;  // [tokens, kv_heads, key_dim], rotated
  ConstTensorView v;  // [tokens, kv_heads, value_dim]

  constexpr bool in_place() const { return k.data == nullptr; }
};

// Writes new rows from the local row blocks, the protected rows or the write-back buffer to the
// blocks on the host. Link traffic.
struct WriteBackParams {
  static constexpr const char* kName = "write_back";
  StepParams step;
};

// Rebuilds tail and protected rows of each sequence at length `start` (tokens = 0) from its row
// blocks, for all layers: after a truncation, a fork or an aborted step. `step.layer` is unused;
// slice_dims is [layers][kv_heads][dims].
// Hot rows become invalid at the same time; that is not this kernel's work: the sequence's owner
// empties their table, which this kernel neither reads nor writes.
struct RestoreParams {
  static constexpr const char* kName = "restore";
  StepParams step;
};

// The number of tokens that a decode step attends to: a count, or a share of the visible ones.
struct TokenBudget {
  int32_t tokens = 0;      // > 0, or 0: `share` applies
  float share = 0;         // (0, 1], rounded up
  int32_t min_tokens = 0;  // bounds of a share; 0: none
  int32_t max_tokens = 0;

  // At least `floor` (sinks + recent + 1), at most `visible`.
  constexpr int32_t of(int32_t visible, int32_t floor) const {
    int64_t count = tokens;
    if (tokens == 0) {
      const double exact = static_cast<double>(share) * visible;
      count = static_cast<int64_t>(exact);
      if (static_cast<double>(count) < exact) ++count;
      if (max_tokens > 0 && count > max_tokens) count = max_tokens;
      if (count < min_tokens) count = min_tokens;
    }
    if (count < floor) count = floor;
    return count < visible ? static_cast<int32_t>(count) : visible;
  }
};

// The low-bit set of each decode sequence and KV head: tokens outside the set, attended to by codes
// (slice_format.h). All arrays are in device memory; capacity 0: no low-bit set.
struct LowBitSet {
  int32_t capacity = 0;          // >= every size
  int32_t* positions = nullptr;  // [count, kv_heads, capacity], ascending
  int32_t* sizes = nullptr;      // [count, kv_heads]
  // [count, query_heads, capacity], by index in `positions`: q·k over the slice as selection
  // compares it, with the cap applied.
  float* scores = nullptr;
};

// The first position visible to a token at `position`.
constexpr int32_t first_visible(int32_t position, int window) {
  return window > 0 && position + 1 > window ? position + 1 - window : 0;
}

// The next best tokens behind a set, for prefetching. Its capacity is at most kMaxRunnersUp.
struct RunnersUp {
  int32_t capacity = 0;          // 0: not asked for
  int32_t* positions = nullptr;  // [count, kv_heads, capacity], best first, equal ones ascending
  int32_t* sizes = nullptr;      // [count, kv_heads]
};
inline constexpr int32_t kMaxRunnersUp = 2048;

// Counters of one layer in device memory, updated atomically.
struct StepCounters {
  uint64_t protected_rows = 0;   // set entries that were sinks or recent
  uint64_t hits = 0;             // found among the hot rows
  uint64_t misses = 0;           // fetched on demand
  uint64_t nan_scores = 0;       // taken as -inf
  uint64_t prefetched = 0;       // rows fetched on a prediction
  uint64_t prefetched_used = 0;  // prefetched rows that a set then used; once each, also hits

  // Ratios; 1 if the denominator is 0.
  double hit_rate() const { return share(protected_rows + hits, misses); }
  double accuracy() const {  // used share of prefetched rows
    return share(prefetched_used, prefetched - std::min(prefetched_used, prefetched));
  }
  double coverage() const { return share(prefetched_used, misses); }  // share of misses avoided

  StepCounters& operator+=(const StepCounters& other) {
    protected_rows += other.protected_rows;
    hits += other.hits;
    misses += other.misses;
    nan_scores += other.nan_scores;
    prefetched += other.prefetched;
    prefetched_used += other.prefetched_used;
    return *this;
  }

 private:
  static double share(uint64_t part, uint64_t rest) {
    return part + rest == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(part + rest);
  }
};

// TIP: scores every visible token of each decode sequence on the slices and writes the set of the
// best, ascending, one per KV head. S = Σ q·k over the slice, raw dot products, with ALiBi's term
// and the cap if set. Within a GQA group the score of a token is the maximum over the query heads
// of S - max S (max over the visible tokens); NaN counts as -inf. Exact: the best by (score, lower
// position) of the scores that this kernel computes. Sinks and recent tokens are always in the set
// and count towards the budget. The last `window` tokens are visible (0: all); sinks are in the set
// only if they are visible.
//
// The low-bit set holds the next best tokens in the same order, at most `low_bit_budget`; or all of
// them, as `low_bit_pages` (the other is empty then).
//
// A prediction (`ahead` > 0) runs before the layer's append: it sees only committed tokens and has
// no low-bit set. With `score_dims` it reads only the first part of every page.
struct SelectParams {
  static constexpr const char* kName = "select";
  StepParams step;
  ConstTensorView q;  // [tokens, query_heads, key_dim], rotated
  TokenBudget budget;
  int window = 0;
  int score_dims = 0;                 // slice dimensions scored, SliceFormat::prefix(); 0 = all
  int ahead = 0;                      // 0 = the true set; n = a prediction made n layers before
  int32_t selected_capacity = 0;      // >= every budget
  int32_t* sets = nullptr;            // [count, kv_heads, selected_capacity]
  int32_t* selected_sizes = nullptr;  // [count, kv_heads]
  StepCounters* counters = nullptr;
  std::byte* scratch = nullptr;  // DeviceTraits::select_scratch bytes, where that is not null
  int32_t page_capacity = 0;     // >= every number of pages with visible tokens; of the scratch
  TokenBudget low_bit_budget = {};
  LowBitSet low_bit = {};
  LowBitPages low_bit_pages = {};
  RunnersUp runners_up = {};
};

// A step's number, increasing, at most kMaxSteps: a value, or an address that kernels read when
// they run, so that one launch serves many steps.
class StepNumber {
 public:
  constexpr StepNumber() = default;
  constexpr explicit StepNumber(int32_t value) : value_(value) {}
  // `at`: in device memory.
  static constexpr StepNumber of_device(const int32_t* at) {
    StepNumber step_number;
    step_number.at_ = at;
    return step_number;
  }
  // Call where the kernel runs: elsewhere the address may be invalid.
  constexpr int32_t read() const { return at_ != nullptr ? *at_ : value_; }

 private:
  int32_t value_ = 0;
  const int32_t* at_ = nullptr;
};

struct FetchItem {
  const std::byte* source;
  std::byte* destination;
};

// Writes the addresses of the rows of set entries [begin, end); they are valid once the fetches are
// done. With local rows, these are addresses in the row blocks. With rows over the link: a
// protected row, a row of a page with a device copy (a hit without a slot), a hot row, or a fetch
// into a hot slot (chosen by `replacement`, never a slot that this step uses or predicted; `begin`
// = 0 marks the hits of the whole set) or, if no slot is left, into the fetch buffer. A row
// predicted in this step is a hit, but its tile is not ready: the caller also waits for the
// predictions' fetches.
struct ResolveParams {
  static constexpr const char* kName = "resolve";
  StepParams step;
  int32_t begin = 0;  // multiples of kTileTokens, the same for all sequences
  int32_t end = 0;
  StepNumber step_number;
  int32_t selected_capacity = 0;
  const int32_t* sets = nullptr;
  const int32_t* selected_sizes = nullptr;
  std::byte* fetch_buffer = nullptr;  // [count, kv_heads, end - begin, row_bytes]
  const std::byte** rows = nullptr;   // [count, kv_heads, end - begin]
  uint8_t* tile_ready = nullptr;      // [count, kv_heads, tiles of the wave]: nothing to wait for
  FetchItem* fetches = nullptr;       // [count, kv_heads, end - begin]
  int32_t* fetch_counts = nullptr;    // [count, kv_heads]
  StepCounters* counters = nullptr;
};

// Assigns hot slots and fetches to predictions for a later attend of this layer. Runs before the
// layer's append. Skips a prediction whose row is not committed, is protected, is hot, or is in a
// page's device copy; predicted hot rows stay. Slots are chosen as in resolve, never one that this
// step uses. A position never has two slots. If there are more new predictions than slots, they are
// subsampled evenly, independent of the order of heads. Runners-up are taken in order instead;
// those that were fetched for an earlier step and not used yet become predictions of this one.
struct ClaimSlotsParams {
  static constexpr const char* kName = "claim_slots";
  static constexpr int32_t kMaxPredictions = 1 << 15;  // of a head; others are left out
  StepParams step;
  StepNumber step_number;
  int32_t max_rows = 0;     // per head, including earlier predictions of this step; >= 0
  bool runners_up = false;  // the sets are lists of runners-up of the step before
  int window = 0;           // of the layer: earlier positions are skipped
  int32_t selected_capacity = 0;
  // [count, kv_heads, selected_capacity], in any order, any values.
  const int32_t* sets = nullptr;
  const int32_t* selected_sizes = nullptr;  // [count, kv_heads]
  FetchItem* fetches = nullptr;             // [count, kv_heads, max_rows]
  int32_t* fetch_counts = nullptr;          // [count, kv_heads]
  StepCounters* counters = nullptr;

  // `head`: sequence * kv_heads + kv_head.
  constexpr int32_t predictions(int64_t head) const {
    // By value: device code has no address of a constant.
    const int32_t most = selected_capacity < kMaxPredictions ? selected_capacity : +kMaxPredictions;
    return std::clamp(selected_sizes[head], 0, most);
  }
};

// Fetches the rows of a wave from host to device: for heads first, first + stride, ... of the count
// x kv_heads, so that several streams share the work evenly. Link traffic.
struct GatherParams {
  static constexpr const char* kName = "gather";
  CacheLayout layout;
  int count = 0;
  int32_t wave = 0;  // entries per (sequence, kv_head) in `fetches`
  const FetchItem* fetches = nullptr;
  const int32_t* fetch_counts = nullptr;
  int first = 0;
  int stride = 1;
};

// Resolve with rows on the host and the gather of its fetches in one launch: for a few heads, whose
// rows are fetched while other heads are scored.
struct FetchParams {
  static constexpr const char* kName = "fetch";
  ResolveParams resolve;
};

// Pages [first_page, ...) of one layer, copied side by side: [count, pages, kv_heads, kPageTokens,
// row_bytes]; `data` null: reads the row blocks.
struct CopiedPages {
  const std::byte* data = nullptr;
  int32_t first_page = 0;
  int32_t pages = 0;
};

enum class AttendPhase : uint8_t {
  kReadyTiles,      // partials of the tiles with tile_ready, nothing else
  kRemainingTiles,  // partials of the other tiles, then the fold of the wave in tile order
  kAllTiles,        // every tile and the fold
};

// FAC: exact softmax attention of each decode sequence over rows, in tiles of kTileTokens of the
// position-sorted set. Each tile's partial (max, sum, weighted values) is computed separately in
// f32, then the partials are folded into the state in tile order by log-sum-exp. If the set is
// processed in waves, the state is carried from wave to wave.
//
// Rows: entries [begin, end) of the set through `rows`; or, if `selected_sizes` is null, all
// visible positions of pages [begin / kPageTokens, ...) from `pages` (the same tiles: position p is
// in tile (p - first visible) / kTileTokens; begin is a multiple of kTileTokens in that count). A
// page is read from its device copy if there is one; pages outside of `pages` from their row
// blocks. Without partials one thread processes all tiles of a (sequence, kv_head) in order; with
// partials, few heads are split over all threads.
//
// The low-bit set, if there is one, is processed with the last wave: in tiles of kTileTokens, with
// the stored scores and the values' codes. Each tile gives a partial, folded after those of the
// set, in tile order. These tiles wait for no row: kReadyTiles computes all of them. With
// `low_bit_pages` each block of pages gives a partial, in place of the tiles.
struct AttendParams {
  static constexpr const char* kName = "attend";
  StepParams step;
  ConstTensorView q;  // [tokens, query_heads, key_dim]
  float scale = 1;
  int window = 0;
  AttendPhase phase = AttendPhase::kAllTiles;
  int32_t begin = 0;
  int32_t end = 0;
  bool first_wave = true;                   // the state starts empty
  bool last_wave = true;                    // out and lse are written
  const int32_t* selected_sizes = nullptr;  // null: every visible token, from `pages`
  const std::byte* const* rows = nullptr;   // [count, kv_heads, end - begin]
  const uint8_t* tile_ready = nullptr;      // null: no tile is ready
  // The set's positions, [count, kv_heads, selected_capacity]; read only with slopes.
  const int32_t* sets = nullptr;
  int32_t selected_capacity = 0;
  CopiedPages pages;
  // [count, query_heads, tiles of the wave, value_dim + 2]; may be null for kAllTiles.
  float* partials = nullptr;
  // [count, query_heads, value_dim + 2]: max, sum, values; may be null for a single wave.
  float* state = nullptr;
  TensorView out;        // [tokens, query_heads, value_dim]
  float* lse = nullptr;  // [tokens, query_heads], natural log, or null
  LowBitSet low_bit = {};
  LowBitPages low_bit_pages = {};
  // [count, query_heads, tiles of low_bit.capacity or blocks of low_bit_pages.capacity,
  // value_dim + 2]; null where `partials` is.
  float* low_bit_partials = nullptr;
};

// Exact causal attention of each prefill sequence. Key blocks of kPageTokens, counted from position
// 0, are folded in order; a query's bits depend only on its q and the rows. Each call processes key
// pages [begin_page, end_page); the state is carried between calls. A page is read from the
// write-back buffer, else its device copy, else `pages`, else its row block.
struct PrefillParams {
  static constexpr const char* kName = "prefill";
  StepParams step;
  ConstTensorView q;  // [tokens, query_heads, key_dim]
  float scale = 1;
  int window = 0;
  int32_t begin_page = 0;
  int32_t end_page = 0;
  bool first_wave = true;
  bool last_wave = true;
  CopiedPages pages;
  float* state = nullptr;  // [tokens, query_heads, value_dim + 2]; may be null for a single wave
  TensorView out;          // [tokens, query_heads, value_dim]
  float* lse = nullptr;    // [tokens, query_heads] or null
};

// Decodes stored rows of one sequence and layer to keys and values, the row of position first + i
// to token i, converted to the views' dtypes. Reading rows on the host is link traffic.
struct ReadRowsParams {
  static constexpr const char* kName = "read_rows";
  CacheLayout layout;
  int layer = 0;
  std::byte* const* row_blocks = nullptr;  // as a SequenceDesc's
  int32_t first = 0;
  RowAccess access = RowAccess::kLocal;
  TensorView k;  // [tokens, kv_heads, key_dim]
  TensorView v;  // [tokens, kv_heads, value_dim]
};

}  // namespace fasa
