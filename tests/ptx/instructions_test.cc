// Each family of instructions, with values by the PTX ISA.
#include <gtest/gtest.h>

#include <bit>

#include "tests/ptx/program.h"

namespace fasa::ptx {
namespace {

constexpr uint32_t kNaN = 0x7fc00000, kMinusZero = 0x80000000;
uint32_t f(float value) { return std::bit_cast<uint32_t>(value); }

struct Case {
  const char* code;  // from %r10, %r11, %r12 (as floats %f10 ...) to %r20
  std::vector<uint32_t> in;
  uint32_t expected;
};

void expect_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    std::string body;
    for (size_t i = 0; i < 3; ++i) {
      body += fmt::format("ld.global.u32 %r1{0}, [%rd1+{1}];\nmov.b32 %f1{0}, %r1{0};\n", i, 4 * i);
    }
    std::vector<uint32_t> in = c.in;
    in.resize(3);
    const std::vector<uint32_t> out =
        run_program(body + c.code + "\nst.global.u32 [%rd2], %r20;", in);
    EXPECT_EQ(out, std::vector<uint32_t>(32, c.expected)) << c.code << ", " << in[0];
  }
}

// The halves of a 64-bit result %rd20, combined by xor.
#define FASA_HALVES "mov.b64 {%r18, %r19}, %rd20; xor.b32 %r20, %r18, %r19;"
// The bits of a float result %f20.
#define FASA_FLOAT " mov.b32 %r20, %f20;"
// 1 for a predicate %p20.
#define FASA_PREDICATE " selp.u32 %r20, 1, 0, %p20;"

TEST(PtxInstructions, Integers) {
  expect_all({
      {"add.s32 %r20, %r10, %r11;", {0x7fffffff, 1}, 0x80000000},
      {"sub.s32 %r20, %r10, 5;", {3}, static_cast<uint32_t>(-2)},
      {"mul.lo.s32 %r20, %r10, %r11;", {0x10001, 0x10001}, 0x20001},
      {"mul.hi.s32 %r20, %r10, %r11;", {static_cast<uint32_t>(-1), 2}, 0xffffffff},
      {"mad.lo.s32 %r20, %r10, %r11, %r12;", {7, 6, 5}, 47},
      {"mul.wide.s32 %rd20, %r10, %r11;" FASA_HALVES, {static_cast<uint32_t>(-3), 5}, 14},
      {"mul.wide.u32 %rd20, %r10, %r11;" FASA_HALVES, {0x80000000, 4}, 2},
      {"cvt.u16.u32 %rs10, %r10; mul.wide.u16 %r20, %rs10, %rs10;", {0xffff}, 0xfffe0001},
      {"cvt.s64.s32 %rd10, %r10; mad.wide.u32 %rd20, %r11, %r12, %rd10;" FASA_HALVES,
       {static_cast<uint32_t>(-1), 1, 1},
       0},
      {"div.s32 %r20, %r10, %r11;", {static_cast<uint32_t>(-7), 2}, static_cast<uint32_t>(-3)},
      {"div.u32 %r20, %r10, %r11;", {0xfffffffe, 2}, 0x7fffffff},
      {"rem.s32 %r20, %r10, %r11;", {static_cast<uint32_t>(-7), 2}, static_cast<uint32_t>(-1)},
      {"min.s32 %r20, %r10, %r11;", {static_cast<uint32_t>(-1), 1}, 0xffffffff},
      {"min.u32 %r20, %r10, %r11;", {0xffffffff, 1}, 1},
      {"max.s32 %r20, %r10, %r11;", {static_cast<uint32_t>(-1), 1}, 1},
      {"bfe.u32 %r20, %r10, 8, 8;", {0x1289ab}, 0x89},
      {"bfe.s32 %r20, %r10, 8, 8;", {0x1289ab}, 0xffffff89},
      {"bfe.s32 %r20, %r10, 28, 8;", {0x80000000}, 0xfffffff8},
      {"bfe.u32 %r20, %r10, 8, 0;", {0x1289ab}, 0},
      {"abs.s32 %r20, %r10;", {static_cast<uint32_t>(-9)}, 9},
      {"neg.s32 %r20, %r10;", {9}, static_cast<uint32_t>(-9)},
  });
}

TEST(PtxInstructions, Bits) {
  expect_all({
      {"and.b32 %r20, %r10, %r11;", {12, 10}, 8},
      {"or.b32 %r20, %r10, %r11;", {12, 10}, 14},
      {"xor.b32 %r20, %r10, %r11;", {12, 10}, 6},
      {"not.b32 %r20, %r10;", {0xff}, 0xffffff00},
      {"shl.b32 %r20, %r10, %r11;", {3, 31}, 0x80000000},
      {"shl.b32 %r20, %r10, %r11;", {3, 40}, 0},
      {"shr.u32 %r20, %r10, 40;", {0xffffffff}, 0},
      {"shr.s32 %r20, %r10, 40;", {static_cast<uint32_t>(-8)}, 0xffffffff},
      {"bfi.b32 %r20, %r10, %r11, 4, 4;", {0x1f, 0xffffff0f}, 0xffffffff},
      {"bfind.shiftamt.u32 %r20, %r10;", {1}, 31},
      {"bfind.shiftamt.u32 %r20, %r10;", {0}, 0xffffffff},
      {"brev.b32 %r20, %r10;", {6}, 0x60000000},
      {"popc.b32 %r20, %r10;", {0xf0f0}, 8},
      {"prmt.b32 %r20, %r10, %r11, 0x7410;", {0x33221100, 0x77665544}, 0x77441100},
      {"prmt.b32 %r20, %r10, %r11, 0x8b08;", {0x80000080, 0}, 0xffff80ff},
      {"shf.l.wrap.b32 %r20, %r10, %r11, 8;", {0x12345678, 0x9abcdef0}, 0xbcdef012},
      {"shf.l.wrap.b32 %r20, %r10, %r11, %r12;", {1, 2, 32}, 2},
      {"shf.r.wrap.b32 %r20, %r10, %r11, 8;", {0x12345678, 0x9abcdef0}, 0xf0123456},
      {"shf.r.wrap.b32 %r20, %r10, %r11, %r12;", {1, 2, 32}, 1},
      {"mov.b64 %rd20, {%r10, %r11};" FASA_HALVES, {5, 6}, 3},
      {"mov.b32 {%rs10, %rs11}, %r10; mov.b32 %r20, {%rs11, %rs10};", {0x12345678}, 0x56781234},
  });
}

TEST(PtxInstructions, Floats) {
  expect_all({
      {"add.rn.f32 %f20, %f10, %f11;" FASA_FLOAT, {f(1), f(0x1.8p-24f)}, f(1 + 0x1p-23f)},
      {"add.rz.f32 %f20, %f10, %f11;" FASA_FLOAT, {f(1), f(0x1.8p-24f)}, f(1)},
      {"fma.rn.f32 %f20, %f10, %f11, %f12;" FASA_FLOAT, {f(3), f(5), f(-1)}, f(14)},
      {"fma.rm.f32 %f20, %f10, %f11, %f12;" FASA_FLOAT, {f(1), f(1), f(0x1.8p-24f)}, f(1)},
      {"min.f32 %f20, %f10, %f11;" FASA_FLOAT, {kNaN, f(2)}, f(2)},
      {"min.f32 %f20, %f10, %f11;" FASA_FLOAT, {f(0), kMinusZero}, kMinusZero},
      {"max.f32 %f20, %f10, %f11;" FASA_FLOAT, {f(3), kNaN}, f(3)},
      {"copysign.f32 %f20, %f10, %f11;" FASA_FLOAT, {f(-2), f(5)}, f(-5)},
      {"sqrt.rn.f32 %f20, %f10;" FASA_FLOAT, {f(2)}, 0x3fb504f3},
      {"rcp.rn.f32 %f20, %f10;" FASA_FLOAT, {f(3)}, 0x3eaaaaab},
      {"ex2.approx.ftz.f32 %f20, %f10;" FASA_FLOAT, {f(3)}, f(8)},
      {"ex2.approx.ftz.f32 %f20, %f10;" FASA_FLOAT, {f(-140)}, 0},
      {"div.rn.f32 %f20, %f10, 0f40000000;" FASA_FLOAT, {f(7)}, f(3.5f)},
      {"abs.f32 %f20, %f10;" FASA_FLOAT, {f(-7)}, f(7)},
      {"neg.f32 %f20, %f10;" FASA_FLOAT, {f(0)}, kMinusZero},
  });
}

TEST(PtxInstructions, Comparisons) {
  expect_all({
      {"setp.lt.s32 %p20, %r10, %r11;" FASA_PREDICATE, {static_cast<uint32_t>(-1), 1}, 1},
      {"setp.lt.u32 %p20, %r10, %r11;" FASA_PREDICATE, {0xffffffff, 1}, 0},
      {"setp.ne.f32 %p20, %f10, %f11;" FASA_PREDICATE, {kNaN, f(1)}, 0},
      {"setp.neu.f32 %p20, %f10, %f11;" FASA_PREDICATE, {kNaN, f(1)}, 1},
      {"setp.ge.f32 %p20, %f10, %f11;" FASA_PREDICATE, {f(0), kMinusZero}, 1},
      {"setp.num.f32 %p20, %f10, %f11;" FASA_PREDICATE, {kNaN, f(1)}, 0},
      {"setp.nan.f32 %p20, %f10, %f11;" FASA_PREDICATE, {kNaN, f(1)}, 1},
      {"setp.eq.s32 %p10, %r10, 1; setp.eq.s32 %p11, %r11, 1; and.pred %p20, %p10, "
       "%p11;" FASA_PREDICATE,
       {1, 0},
       0},
      {"setp.eq.s32 %p10, %r10, 1; not.pred %p20, %p10;" FASA_PREDICATE, {1}, 0},
      {"mov.pred %p20, -1;" FASA_PREDICATE, {}, 1},
  });
}

TEST(PtxInstructions, Conversions) {
  expect_all({
      {"cvt.rni.s32.f32 %r20, %f10;", {f(2.5f)}, 2},
      {"cvt.rzi.s32.f32 %r20, %f10;", {f(-2.7f)}, static_cast<uint32_t>(-2)},
      {"cvt.rzi.u32.f32 %r20, %f10;", {f(-1)}, 0},
      {"cvt.rzi.u32.f32 %r20, %f10;", {f(1e20f)}, 0xffffffff},
      {"cvt.rzi.s32.f32 %r20, %f10;", {kNaN}, 0},
      {"cvt.sat.f32.f32 %f20, %f10;" FASA_FLOAT, {f(2)}, f(1)},
      {"cvt.sat.f32.f32 %f20, %f10;" FASA_FLOAT, {kNaN}, 0},
      {"cvt.rn.f32.s32 %f20, %r10;" FASA_FLOAT, {static_cast<uint32_t>(-3)}, f(-3)},
      {"cvt.rn.f16.f32 %rs10, %f10; cvt.u32.u16 %r20, %rs10;", {f(1)}, 0x3c00},
      {"cvt.u16.u32 %rs10, %r10; cvt.f32.f16 %f20, %rs10;" FASA_FLOAT, {0xc000}, f(-2)},
      {"cvt.rn.f16x2.f32 %r20, %f10, %f11;", {f(1), f(-2)}, 0x3c00c000},
      {"cvt.rn.bf16x2.f32 %r20, %f10, %f11;", {f(1), f(-2)}, 0x3f80c000},
      {"cvt.s32.s8 %r20, %r10;", {0x180}, 0xffffff80},
  });
}

TEST(PtxInstructions, Shuffles) {
  const auto lanes = [](const auto& of) {
    std::vector<uint32_t> all;
    for (uint32_t lane = 0; lane < 32; ++lane) all.push_back(of(lane));
    return all;
  };
  EXPECT_EQ(run_program("shfl.sync.idx.b32 %r10, %r1, 7, 31, -1; st.global.u32 [%rd2], %r10;"),
            lanes([](uint32_t) { return 7u; }));
  EXPECT_EQ(run_program("shfl.sync.bfly.b32 %r10, %r1, 3, 31, -1; st.global.u32 [%rd2], %r10;"),
            lanes([](uint32_t lane) { return lane ^ 3; }));
  EXPECT_EQ(run_program("shfl.sync.down.b32 %r10|%p10, %r1, 4, 31, -1;\n"
                        "selp.u32 %r11, %r10, 99, %p10; st.global.u32 [%rd2], %r11;"),
            lanes([](uint32_t lane) { return lane < 28 ? lane + 4 : 99; }));
  EXPECT_EQ(run_program("setp.gt.u32 %p10, %r1, 29; vote.sync.ballot.b32 %r10, %p10, -1;\n"
                        "st.global.u32 [%rd2], %r10;"),
            lanes([](uint32_t) { return 0xc0000000u; }));
}

// Row r of a has r in column 0, b has its column's number in row 0.
TEST(PtxInstructions, Products) {
  const std::vector<uint32_t> out = run_program(R"(
  and.b32 %r10, %r1, 3;
  setp.eq.s32 %p10, %r10, 0;
  shr.u32 %r11, %r1, 2;
  add.s32 %r12, %r11, 8;
  cvt.rn.f16.u32 %rs10, %r11;
  cvt.rn.f16.u32 %rs11, %r12;
  cvt.u32.u16 %r13, %rs10;
  cvt.u32.u16 %r14, %rs11;
  selp.b32 %r15, %r13, 0, %p10;
  selp.b32 %r16, %r14, 0, %p10;
  mov.u32 %r17, 0;
  mov.f32 %f10, 0f3F800000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f20, %f21, %f22, %f23},
    {%r15, %r16, %r17, %r17}, {%r15, %r17}, {%f10, %f10, %f10, %f10};
  fma.rn.f32 %f24, %f23, 0f44800000, %f20;
  cvt.rzi.u32.f32 %r20, %f24;
  st.global.u32 [%rd2], %r20;)");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    EXPECT_EQ(out[lane], (row + 8) * (column + 1) * 1024 + 1024 + row * column + 1) << lane;
  }
}

// Row r of matrix m begins at byte 128 m + 16 r and has elements 64 m + 8 r + column.
TEST(PtxInstructions, MatricesOfAWarp) {
  for (const bool transposed : {false, true}) {
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const std::vector<uint32_t> out = run_program(fmt::format(
                                                        R"(
  mov.u32 %r10, shared_memory;
  shl.b32 %r11, %r1, 4;
  add.s32 %r12, %r10, %r11;
  shl.b32 %r13, %r1, 3;
  mad.lo.s32 %r14, %r13, 65537, 65536;
  add.s32 %r15, %r14, 131074;
  add.s32 %r16, %r15, 131074;
  add.s32 %r17, %r16, 131074;
  st.shared.v4.u32 [%r12], {{%r14, %r15, %r16, %r17}};
  bar.warp.sync -1;
  ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r12];
  st.global.u32 [%rd2], %r{};)",
                                                        transposed ? ".trans" : "", 20 + matrix),
                                                    {}, {.shared_bytes = 512});
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t row = lane / 4, c = lane % 4 * 2;
        const uint32_t first = 64 * matrix + (transposed ? 8 * c + row : 8 * row + c);
        EXPECT_EQ(out[lane], first | (first + (transposed ? 8 : 1)) << 16) << lane;
      }
    }
  }
}

TEST(PtxInstructions, SharedMemoryAndAtomics) {
  const std::vector<uint32_t> out = run_program(R"(
  mov.u32 %r10, shared_memory;
  shl.b32 %r11, %r1, 2;
  add.s32 %r12, %r10, %r11;
  st.shared.u32 [%r12+16], %r1;
  setp.ne.s32 %p10, %r1, 0;
  @%p10 bra $done;
  mov.u32 %r13, 0;
  st.shared.u32 [%r10], %r13;
$done:
  bar.sync 0;
  atom.shared.add.u32 %r14, [%r10], 1;
  bar.sync 0;
  ld.shared.u32 %r15, [%r10];
  xor.b32 %r16, %r11, 252;
  add.s32 %r17, %r10, %r16;
  ld.shared.u32 %r18, [%r17+16];
  mad.lo.s32 %r19, %r15, 1000, %r18;
  st.global.u32 [%rd2], %r19;)",
                                                {}, {.threads = 64, .shared_bytes = 16 + 256});
  for (uint32_t thread = 0; thread < 64; ++thread) EXPECT_EQ(out[thread], 64000 + 63 - thread);
}

TEST(PtxInstructions, AsynchronousCopies) {
  const std::vector<uint32_t> out =
      run_program(R"(
  mov.u32 %r10, shared_memory;
  shl.b32 %r11, %r1, 2;
  add.s32 %r12, %r10, %r11;
  cvt.u64.u32 %rd10, %r11;
  add.s64 %rd11, %rd1, %rd10;
  cp.async.ca.shared.global [%r12], [%rd11], 4;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.sync 0;
  ld.shared.u32 %r13, [%r12];
  st.global.u32 [%rd2], %r13;)",
                  std::vector<uint32_t>(32, 77), {.shared_bytes = 128});
  EXPECT_EQ(out, std::vector<uint32_t>(32, 77));
}

// A loop of a different length in each lane, in every order.
TEST(PtxInstructions, DivergentLoops) {
  for (const unsigned seed : {0u, 1u, 2u}) {
    const std::vector<uint32_t> out = run_program(R"(
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
$loop:
  setp.ge.u32 %p10, %r11, %r1;
  @%p10 bra $end;
  add.s32 %r10, %r10, %r11;
  add.s32 %r11, %r11, 1;
  bra.uni $loop;
$end:
  bar.warp.sync -1;
  st.global.u32 [%rd2], %r10;)",
                                                  {}, {.threads = 64, .options = {.seed = seed}});
    for (uint32_t n = 0; n < 64; ++n) EXPECT_EQ(out[n], n == 0 ? 0 : n * (n - 1) / 2);
  }
}

}  // namespace
}  // namespace fasa::ptx
