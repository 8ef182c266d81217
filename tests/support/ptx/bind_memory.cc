// Loads, stores, atomics, asynchronous copies, matrices and addresses.
#include <algorithm>
#include <array>

#include "tests/support/ptx/arithmetic.h"
#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/warp.h"

namespace fasa::ptx {
namespace {

// Registers, then the address.
template <typename T>
void load(Warp& warp, const Instruction& in, uint32_t lanes) {
  uint32_t known = 0;
  for_lanes(lanes, [&](int lane) {
    bool defined = true;
    const std::byte* const from =
        warp.locate(lane,
                    {.space = in.space,
                     .address = warp.address_of(in, in.count, lane, in.immediate),
                     .bytes = static_cast<unsigned>(sizeof(T)) * in.count},
                    &defined);
    for (int k = 0; k < in.count; ++k) {
      warp.put<T>(in, k, lane, load_bits<T>(from + sizeof(T) * static_cast<size_t>(k)));
    }
    if (defined) known |= uint32_t{1} << lane;
  });
  for (int k = 0; k < in.count; ++k) warp.define(in.slot[k], lanes, known);
}

template <typename T>
void store(Warp& warp, const Instruction& in, uint32_t lanes) {
  uint32_t known = kAllLanes;
  for (int k = 0; k < in.count; ++k) known &= warp.defined(in.slot[k]);
  for_lanes(lanes, [&](int lane) {
    T values[4] = {};
    for (int k = 0; k < in.count; ++k) values[k] = warp.get<T>(in, k, lane);
    const unsigned bytes = static_cast<unsigned>(sizeof(T)) * in.count;
    std::byte* const to =
        warp.locate(lane, {.space = in.space,
                           .address = warp.address_of(in, in.count, lane, in.immediate),
                           .bytes = bytes,
                           .write = true,
                           .value_defined = (known >> lane & 1) != 0,
                           .value = reinterpret_cast<const std::byte*>(values)});
    std::memcpy(to, values, bytes);
  });
}

// Result (slot 0: none), address, value.
template <typename T, typename F>
void atomic(Warp& warp, const Instruction& in, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    bool known = true;
    Warp::Access access{.space = in.space,
                        .address = warp.address_of(in, 1, lane, in.immediate),
                        .bytes = sizeof(T),
                        .atomic = true};
    warp.locate(lane, access, &known);
    access.write = true;
    access.value_defined = known && (warp.defined(in.slot[2]) >> lane & 1) != 0;
    std::byte* const at = warp.locate(lane, access);
    const T old = load_bits<T>(at);
    const T value = F()(old, warp.get<T>(in, 2, lane));
    std::memcpy(at, &value, sizeof(T));
    if (in.slot[0] == 0) return;
    warp.put<T>(in, 0, lane, old);
    warp.define(in.slot[0], uint32_t{1} << lane, known ? kAllLanes : 0);
  });
}

// Shared address, global address.
void copy_async(Warp& warp, const Instruction& in, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const uint64_t to = warp.address_of(in, 0, lane, in.immediate);
    const std::byte* const from = warp.locate(
        lane,
        {.space = Space::kGlobal, .address = warp.address_of(in, 1, lane, 0), .bytes = in.bytes});
    warp.locate(lane, {.space = Space::kShared, .address = to, .bytes = in.bytes, .write = true});
    warp.copy_later(lane, to - SharedMemory::kBase, from, in.bytes);
  });
}

void commit_group(Warp& warp, const Instruction&, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) { warp.commit_copies(lane); });
}
void wait_group(Warp& warp, const Instruction& in, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) { warp.finish_copies(lane, static_cast<size_t>(in.immediate)); });
}

// Four registers of each lane, the address, the mask. Lane 8 m + r has the address of row r of
// matrix m, eight elements of 16 bits. A lane's register m holds elements 2 (lane % 4) and the next
// one of row lane / 4 of matrix m; mode 1 (transposed): of column lane / 4.
void load_matrices(Warp& warp, const Instruction& in, uint32_t lanes) {
  if (lanes != kAllLanes) warp.fail("a load of matrices without all lanes");
  constexpr unsigned kRowBytes = 16;
  const std::byte* rows[kLanes];
  bool known[kLanes];
  for_lanes(lanes, [&](int lane) {
    known[lane] = true;
    rows[lane] = warp.locate(lane,
                             {.space = Space::kShared,
                              .address = warp.address_of(in, 4, lane, in.immediate),
                              .bytes = kRowBytes},
                             &known[lane]);
  });
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint32_t defined = 0;
    for_lanes(lanes, [&](int lane) {
      const int of_pair = lane % 4 * 2;
      uint32_t pair = 0;
      bool all = true;
      for (int i = 0; i < 2; ++i) {
        const int row = matrix * 8 + (in.mode != 0 ? of_pair + i : lane / 4);
        const int column = in.mode != 0 ? lane / 4 : of_pair + i;
        pair |= uint32_t{load_bits<uint16_t>(rows[row] + 2 * column)} << 16 * i;
        all = all && known[row];
      }
      warp.put<uint32_t>(in, matrix, lane, pair);
      defined |= uint32_t{all} << lane;
    });
    warp.define(in.slot[matrix], lanes, defined);
  }
}

// Between a window's addresses and generic ones, which are the host's.
void change_space(Warp& warp, const Instruction& in, uint32_t lanes) {
  const bool to_window = in.mode != 0;
  for_lanes(lanes, [&](int lane) {
    const bool windowed = in.space == Space::kShared || in.space == Space::kLocal;
    const uint64_t base = windowed ? warp.window(in.space, lane) : 0;
    const auto address = warp.get<uint64_t>(in, 1, lane);
    warp.put<uint64_t>(in, 0, lane, to_window ? address - base : address + base);
  });
  warp.define(in.slot[0], lanes, warp.defined(in.slot[1]));
}

constexpr std::array<std::pair<std::string_view, Space>, 4> kSpaces{{{"global", Space::kGlobal},
                                                                     {"shared", Space::kShared},
                                                                     {"local", Space::kLocal},
                                                                     {"param", Space::kParam}}};

Space space_of(const Statement& statement) {
  for (const std::string_view part : statement.parts) {
    const auto* const found =
        std::ranges::find(kSpaces, part, &decltype(kSpaces)::value_type::first);
    if (found != kSpaces.end()) return found->second;
  }
  return Space::kGeneric;
}
bool has(const Statement& statement, std::string_view part) {
  return std::ranges::find(statement.parts, part) != statement.parts.end();
}

// Hints of caches change nothing here.
void bind_access(Statement& statement) {
  statement.allow({"global", "shared", "local", "param", "nc", "cg", "ca", "cs", "v2", "v4",
                   statement.parts.back()});
  statement.expect_arguments(2);
  Instruction& in = statement.in;
  const bool loads = statement.is("ld");
  in.space = space_of(statement);
  in.count = has(statement, "v2") ? 2 : has(statement, "v4") ? 4 : 1;
  in.bytes = static_cast<uint8_t>(statement.width());
  statement.decoder.add_elements(in, statement.arguments[loads ? 0 : 1], statement.width());
  in.results = loads ? in.count : 0;
  if (in.operands != in.count) statement.decoder.fail("not as many registers", statement.opcode);
  statement.decoder.add_address(in, statement.arguments[loads ? 1 : 0]);
  in.run = with_type<Number>(*statement.type, [&](auto x) -> Run {
    return loads ? load<decltype(x)> : store<decltype(x)>;
  });
}

struct Operation {
  std::string_view name;
  Run (*bind)(Type type);
};
template <template <typename> typename kAllowed, typename F>
Run atomic_of(Type type) {
  return with_type<kAllowed>(type, [](auto x) -> Run { return atomic<decltype(x), F>; });
}
constexpr std::array kOperations{
    Operation{"add", atomic_of<Number, Add>},  Operation{"max", atomic_of<Number, Max>},
    Operation{"min", atomic_of<Number, Min>},  Operation{"or", atomic_of<Integer, Or>},
    Operation{"and", atomic_of<Integer, And>}, Operation{"xor", atomic_of<Integer, Xor>}};

void bind_atomic(Statement& statement) {
  const bool reduces = statement.is("red");
  statement.expect_arguments(reduces ? 2 : 3);
  Instruction& in = statement.in;
  in.space = space_of(statement);
  const int width = statement.width();
  const size_t first = reduces ? 0 : 1;
  statement.decoder.add_operand(in, reduces ? "_" : statement.arguments[0], width);
  statement.decoder.add_address(in, statement.arguments[first]);
  statement.decoder.add_operand(in, statement.arguments[first + 1], width);
  for (const Operation& operation : kOperations) {
    if (!has(statement, operation.name)) continue;
    statement.allow({"global", "shared", "relaxed", "gpu", operation.name, statement.parts.back()});
    in.run = operation.bind(*statement.type);
  }
}

void bind_copy(Statement& statement) {
  Instruction& in = statement.in;
  if (statement.opcode == "cp.async.commit_group") {
    in.run = commit_group;
  } else if (statement.opcode == "cp.async.wait_group") {
    statement.expect_arguments(1);
    in.immediate = std::atoi(std::string(statement.arguments[0]).c_str());
    in.run = wait_group;
  } else {
    statement.allow({"async", "ca", "cg", "shared", "global"});
    statement.expect_arguments(3);
    in.space = Space::kGlobal;
    statement.decoder.add_address(in, statement.arguments[1]);
    if (in.immediate != 0) statement.decoder.fail("a source with an offset", statement.opcode);
    in.operands = 0;
    in.space = Space::kShared;
    statement.decoder.add_address(in, statement.arguments[0]);
    const int64_t offset = in.immediate;
    in.space = Space::kGlobal;
    statement.decoder.add_address(in, statement.arguments[1]);
    in.immediate = offset;
    in.bytes = static_cast<uint8_t>(std::atoi(std::string(statement.arguments[2]).c_str()));
    in.results = 0;
    in.run = copy_async;
  }
}

void bind_matrices(Statement& statement) {
  statement.allow({"sync", "aligned", "m8n8", "x4", "trans", "shared", "b16"});
  statement.expect_arguments(2);
  Instruction& in = statement.in;
  if (!has(statement, "x4")) statement.decoder.fail("not four matrices", statement.opcode);
  statement.decoder.add_elements(in, statement.arguments[0], 4);
  in.results = 4;
  in.space = Space::kShared;
  statement.decoder.add_address(in, statement.arguments[1]);
  statement.decoder.add_operand(in, "-1", 4);  // all lanes meet
  in.mode = has(statement, "trans") ? 1 : 0;
  in.kind = Kind::kCollective;
  in.run = load_matrices;
}

void bind_space(Statement& statement) {
  statement.allow({"to", "global", "shared", "local", "param", statement.parts.back()});
  statement.expect_arguments(2);
  statement.add_all(8);
  statement.in.space = space_of(statement);
  statement.in.mode = has(statement, "to") ? 1 : 0;
  statement.in.run = change_space;
}

}  // namespace

bool bind_memory(Statement& statement) {
  const bool typed = statement.type.has_value();
  if (typed && (statement.is("ld") || statement.is("st"))) {
    bind_access(statement);
  } else if (typed && (statement.is("atom") || statement.is("red"))) {
    bind_atomic(statement);
  } else if (typed && statement.is("cvta")) {
    bind_space(statement);
  } else if (statement.is("cp")) {
    bind_copy(statement);
  } else if (statement.is("ldmatrix")) {
    bind_matrices(statement);
  } else if (statement.opcode == "membar.gl" || statement.opcode == "membar.cta") {
    // Stores are visible at once.
    statement.in.run = [](Warp&, const Instruction&, uint32_t) {};
  } else if (statement.opcode == "prefetch.global.L2") {
    statement.in.run = [](Warp&, const Instruction&, uint32_t) {};
  } else {
    return false;
  }
  return true;
}

}  // namespace fasa::ptx
