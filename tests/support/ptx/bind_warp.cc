// Control flow, barriers, and instructions in which the lanes of a warp meet.
#include <algorithm>
#include <array>

#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/warp.h"

namespace fasa::ptx {
namespace {

enum : uint8_t { kIndex, kUp, kDown, kButterfly };  // modes of a shuffle

struct Source {
  int lane;
  bool inside;  // of the segment
};
Source source_of(uint8_t mode, int lane, uint32_t operand, uint32_t bounds) {
  const auto by = static_cast<int>(operand & 31);
  const auto clamp = static_cast<int>(bounds & 31);
  const auto segment = static_cast<int>(bounds >> 8 & 31);
  const int last = (lane & segment) | (clamp & ~segment);
  const int from = mode == kIndex  ? (lane & segment) | (by & ~segment)
                   : mode == kUp   ? lane - by
                   : mode == kDown ? lane + by
                                   : lane ^ by;
  const bool inside = mode == kUp ? from >= last : from <= last;
  return {inside ? from : lane, inside};
}

// Result, predicate, value, lane, bounds, mask.
void shuffle(Warp& warp, const Instruction& in, uint32_t lanes) {
  const uint32_t* const values = warp.at<uint32_t>(in.slot[2]);
  const uint32_t* const masks = warp.at<uint32_t>(in.slot[5]);
  const uint32_t known = warp.defined(in.slot[2]);
  uint32_t results[kLanes] = {};
  uint32_t defined = 0, inside = 0;
  for_lanes(lanes, [&](int lane) {
    if (((warp.defined(in.slot[3]) & warp.defined(in.slot[4])) >> lane & 1) == 0) {
      warp.fail("shuffles from an undefined lane", lane);
    }
    const Source source = source_of(in.mode, lane, warp.at<uint32_t>(in.slot[3])[lane],
                                    warp.at<uint32_t>(in.slot[4])[lane]);
    if ((masks[lane] >> source.lane & 1) == 0) {
      warp.fail("shuffles from lane " + std::to_string(source.lane) + " outside the mask", lane);
    }
    results[lane] = values[source.lane];
    defined |= (known >> source.lane & 1) << lane;
    inside |= uint32_t{source.inside} << lane;
  });
  uint32_t* const result = warp.at<uint32_t>(in.slot[0]);
  for_lanes(lanes, [&](int lane) { result[lane] = results[lane]; });
  warp.define(in.slot[0], lanes, defined);
  if (in.slot[1] == 0) return;
  uint32_t& predicate = warp.predicate(in.slot[1]);
  predicate = (predicate & ~lanes) | inside;
  warp.define(in.slot[1], lanes, kAllLanes);
}

// Result, predicate, mask.
void ballot(Warp& warp, const Instruction& in, uint32_t lanes) {
  if ((lanes & ~warp.defined(in.slot[1])) != 0) warp.fail("a vote of an undefined predicate");
  const uint32_t votes = warp.predicate(in.slot[1]) ^ (in.negated ? kAllLanes : 0);
  const uint32_t* const masks = warp.at<uint32_t>(in.slot[2]);
  uint32_t* const result = warp.at<uint32_t>(in.slot[0]);
  for_lanes(lanes, [&](int lane) { result[lane] = votes & masks[lane]; });
  warp.define(in.slot[0], lanes, kAllLanes);
}

void sync_warp(Warp& warp, const Instruction&, uint32_t) { ++warp.clock().syncs; }

// The fragments of d[16][8] = a[16][kInner] b[kInner][8] + c[16][8], in the layout of the ISA.
// Row or column of a lane's elements: group + 8 for odd registers, and pairs of columns.
template <typename Half, int kInner>
struct Product {
  static constexpr int kA = kInner / 4;  // registers of a and of b
  static constexpr int kB = kInner / 8;
  float a[16][kInner];
  float b[kInner][8];
  bool rows_known[16];
  bool columns_known[8];

  static float element(const uint32_t* registers, int lane, int e) {
    return f32_of(Half{static_cast<uint16_t>(registers[lane] >> 16 * (e & 1))});
  }
  void load(Warp& warp, const Instruction& in) {
    std::ranges::fill(rows_known, true);
    std::ranges::fill(columns_known, true);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int group = lane >> 2;
      const int pair = (lane & 3) * 2;
      for (int e = 0; e < 2 * kA; ++e) {
        const int slot = in.slot[4 + e / 2];
        const int row = group + (e / 2 % 2) * 8;
        a[row][pair + (e & 1) + (e >= 4 ? 8 : 0)] = element(warp.at<uint32_t>(slot), lane, e);
        if ((warp.defined(slot) >> lane & 1) == 0) rows_known[row] = false;
      }
      for (int e = 0; e < 2 * kB; ++e) {
        const int slot = in.slot[4 + kA + e / 2];
        b[pair + (e & 1) + (e >= 2 ? 8 : 0)][group] = element(warp.at<uint32_t>(slot), lane, e);
        if ((warp.defined(slot) >> lane & 1) == 0) columns_known[group] = false;
      }
    }
  }
  // Products are exact; their sum is taken in double and rounded once.
  float sum(float c, int row, int column) const {
    double total = c;
    for (int k = 0; k < kInner; ++k) total += double{a[row][k]} * double{b[k][column]};
    return static_cast<float>(total);
  }
};

template <typename Half, int kInner>
void multiply(Warp& warp, const Instruction& in, uint32_t lanes) {
  if (lanes != kAllLanes) warp.fail("a product without all lanes");
  using P = Product<Half, kInner>;
  P product = {};
  product.load(warp, in);
  float results[4][kLanes];
  uint32_t known[4] = {};
  for (int e = 0; e < 4; ++e) {
    const int c = in.slot[4 + P::kA + P::kB + e];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = (lane >> 2) + (e >= 2 ? 8 : 0);
      const int column = (lane & 3) * 2 + (e & 1);
      results[e][lane] = product.sum(warp.at<float>(c)[lane], row, column);
      const bool all = product.rows_known[row] && product.columns_known[column] &&
                       (warp.defined(c) >> lane & 1) != 0;
      known[e] |= uint32_t{all} << lane;
    }
  }
  for (int e = 0; e < 4; ++e) {
    std::memcpy(warp.at<float>(in.slot[e]), results[e], sizeof(results[e]));
    warp.define(in.slot[e], kAllLanes, known[e]);
  }
}

struct Named {
  std::string_view opcode;
  Run run;
};
constexpr std::array kProducts{
    Named{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply<F16, 16>},
    Named{"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply<BF16, 16>},
    Named{"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", multiply<F16, 8>}};
constexpr std::array<std::string_view, 4> kShuffles{"shfl.sync.idx.b32", "shfl.sync.up.b32",
                                                    "shfl.sync.down.b32", "shfl.sync.bfly.b32"};

bool bind_product(Statement& statement) {
  const auto* const product = std::ranges::find(kProducts, statement.opcode, &Named::opcode);
  if (product == kProducts.end()) return false;
  for (const std::string_view text : statement.arguments) {
    statement.decoder.add_elements(statement.in, text, 4);
  }
  statement.decoder.add_operand(statement.in, "-1", 4);  // all lanes meet
  statement.in.results = 4;
  statement.in.run = product->run;
  return true;
}

bool bind_collective(Statement& statement) {
  Decoder& decoder = statement.decoder;
  Instruction& in = statement.in;
  const auto& arguments = statement.arguments;
  const auto* const mode = std::ranges::find(kShuffles, statement.opcode);
  if (mode != kShuffles.end()) {
    statement.expect_arguments(5);
    const std::vector<std::string_view> results = split(arguments[0], '|');
    decoder.add_operand(in, results[0], 4);
    decoder.add_operand(in, results.size() > 1 ? results[1] : "_", 0);
    for (size_t i = 1; i < 5; ++i) decoder.add_operand(in, arguments[i], 4);
    in.mode = static_cast<uint8_t>(mode - kShuffles.begin());
    in.results = 2;
    in.run = shuffle;
  } else if (statement.opcode == "vote.sync.ballot.b32") {
    statement.expect_arguments(3);
    in.negated = arguments[1].starts_with('!');
    decoder.add_operand(in, arguments[0], 4);
    decoder.add_operand(in, arguments[1].substr(in.negated ? 1 : 0), 0);
    decoder.add_operand(in, arguments[2], 4);
    in.run = ballot;
  } else if (statement.opcode == "bar.warp.sync") {
    statement.expect_arguments(1);
    decoder.add_operand(in, arguments[0], 4);
    in.results = 0;
    in.run = sync_warp;
  } else if (!bind_product(statement)) {
    return false;
  }
  in.kind = Kind::kCollective;
  return true;
}

}  // namespace

bool bind_warp(Statement& statement) {
  Instruction& in = statement.in;
  if (statement.opcode == "bra" || statement.opcode == "bra.uni") {
    statement.expect_arguments(1);
    statement.decoder.add_target(statement.arguments[0]);
    in.kind = Kind::kBranch;
  } else if (statement.opcode == "ret" || statement.opcode == "exit") {
    in.kind = Kind::kExit;
  } else if (statement.opcode == "bar.sync" || statement.opcode == "barrier.sync") {
    if (statement.arguments.size() != 1 || statement.arguments[0] != "0") {
      statement.decoder.fail("not barrier 0", statement.opcode);
    }
    in.kind = Kind::kBarrier;
  } else if (statement.opcode == "trap") {
    in.run = [](Warp& warp, const Instruction&, uint32_t) { warp.fail("trap"); };
  } else {
    return bind_collective(statement);
  }
  return true;
}

}  // namespace fasa::ptx
