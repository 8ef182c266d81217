// What hardware leaves undefined, and PTX that the executor does not know, are errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ptx/program.h"

namespace fasa::ptx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr ProgramShape kShared = {.threads = 64, .shared_bytes = 256};

// %r12: the address of the thread's word of shared memory.
std::string with_shared(const std::string& code) {
  return "mov.u32 %r10, shared_memory; shl.b32 %r11, %r1, 2; add.s32 %r12, %r10, %r11;\n" + code;
}

TEST(PtxChecks, UnknownTextIsNamed) {
  EXPECT_THAT(error_of("frobnicate.s32 %r10, %r1;"),
              AllOf(HasSubstr("line 1"), HasSubstr("unknown instruction: frobnicate")));
  EXPECT_THAT(error_of("add.sat.s32 %r10, %r1, 1;"), HasSubstr("unknown"));
  EXPECT_THAT(error_of("ld.volatile.global.u32 %r10, [%rd1];"), HasSubstr("modifier .volatile"));
  EXPECT_THAT(error_of("cvt.rn.relu.f16.f32 %rs10, %f10;"), HasSubstr("unknown modifier"));
  EXPECT_THAT(error_of("add.s32 %r10, %q1, 1;"), HasSubstr("unknown operand: %q1"));
  EXPECT_THAT(error_of("add.s32 %r10, %r1;"), HasSubstr("not 3 operands"));
  EXPECT_THAT(error_of("bar.sync 1;"), HasSubstr("not barrier 0"));
  EXPECT_THAT(error_of("bra $nowhere;"), HasSubstr("unknown label: $nowhere"));
  EXPECT_THAT(error_of(".branchtargets a;"), HasSubstr("unknown directive"));
  EXPECT_THAT(error_of("trap;"), HasSubstr("trap"));
}

TEST(PtxChecks, Addresses) {
  EXPECT_THAT(error_of("st.global.u32 [%rd2+2], %r1;"),
              AllOf(HasSubstr("not aligned"), HasSubstr("thread 0")));
  EXPECT_THAT(error_of("mov.u64 %rd10, 8; ld.global.u32 %r10, [%rd10];"), HasSubstr("null"));
  EXPECT_THAT(error_of(with_shared("st.shared.u32 [%r12+4], %r1;"), kShared),
              AllOf(HasSubstr("outside the block's shared memory of 256"), HasSubstr("thread 63")));
  EXPECT_THAT(error_of("ld.param.u64 %rd10, [program_param_0+16];"), HasSubstr("the parameters"));
  EXPECT_THAT(error_of("div.u32 %r10, %r1, %r1;"), HasSubstr("division by zero"));
}

TEST(PtxChecks, UndefinedValues) {
  EXPECT_THAT(error_of("st.global.u32 [%rd2], %r10;"), HasSubstr("stores an undefined value"));
  EXPECT_THAT(error_of("add.s32 %r11, %r10, %r1; st.global.u32 [%rd2], %r11;"),
              HasSubstr("stores an undefined value"));
  EXPECT_THAT(error_of("st.global.u32 [%rd10], %r1;"), HasSubstr("undefined address"));
  EXPECT_THAT(error_of("@%p10 bra $end;\n$end:"), HasSubstr("undefined predicate"));
  EXPECT_THAT(
      error_of(with_shared("ld.shared.u32 %r13, [%r12]; st.global.u32 [%rd2], %r13;"), kShared),
      HasSubstr("stores an undefined value"));
  // Only the chosen operand counts.
  EXPECT_EQ(error_of("setp.ge.u32 %p10, %r1, 0; selp.b32 %r11, %r1, %r10, %p10;\n"
                     "st.global.u32 [%rd2], %r11;"),
            "");
  // Halves count one by one.
  const std::string halves = "mov.b64 %rd10, {%r10, %r1}; mov.b64 {%r11, %r12}, %rd10;\n";
  EXPECT_EQ(error_of(halves + "st.global.u32 [%rd2], %r12;"), "");
  EXPECT_THAT(error_of(halves + "st.global.u32 [%rd2], %r11;"),
              HasSubstr("stores an undefined value"));
  EXPECT_THAT(error_of("mov.b64 %rd10, {%r10, %r1}; add.s64 %rd10, %rd10, 1;\n"
                       "mov.b64 {%r11, %r12}, %rd10; st.global.u32 [%rd2], %r12;"),
              HasSubstr("stores an undefined value"));
}

TEST(PtxChecks, Races) {
  const std::string read_other =
      "xor.b32 %r13, %r11, 252; add.s32 %r14, %r10, %r13;\n"
      "ld.shared.u32 %r15, [%r14];\n";
  EXPECT_THAT(error_of(with_shared("st.shared.u32 [%r12], %r1;" + read_other), kShared),
              HasSubstr("without a barrier between"));
  EXPECT_EQ(error_of(with_shared("st.shared.u32 [%r12], %r1; bar.sync 0;" + read_other), kShared),
            "");
  // All write one word: other values race, the same do not.
  EXPECT_THAT(error_of(with_shared("st.shared.u32 [%r10], %r1;"), kShared), HasSubstr("races"));
  EXPECT_EQ(error_of(with_shared("mov.u32 %r13, 5; st.shared.u32 [%r10], %r13;"), kShared), "");
  EXPECT_THAT(error_of(with_shared("cvt.u64.u32 %rd10, %r11; add.s64 %rd11, %rd1, %rd10;\n"
                                   "cp.async.ca.shared.global [%r12], [%rd11], 4;\n"
                                   "cp.async.commit_group; ld.shared.u32 %r13, [%r12];"),
                       kShared, std::vector<uint32_t>(64)),
              HasSubstr("not waited for"));
}

// A vote orders the load before the store by the values' way, not by the memory model's letter.
TEST(PtxChecks, StrictlyOnlyBarriersOrderMemory) {
  const std::string code = with_shared(R"(
  setp.ne.s32 %p10, %r1, 0;
  @%p10 bra $meet;
  st.shared.u32 [%r10], %r1;
$meet:
  bar.warp.sync -1;
  ld.shared.u32 %r13, [%r10];
  setp.eq.s32 %p11, %r13, 0;
  vote.sync.ballot.b32 %r14, %p11, -1;
  @%p10 bra $end;
  st.shared.u32 [%r10], %r14;
$end:)");
  ProgramShape shape = {.shared_bytes = 128};
  EXPECT_EQ(error_of(code, shape), "");
  shape.options.strict = true;
  EXPECT_THAT(error_of(code, shape), HasSubstr("overwrites what is read"));
}

TEST(PtxChecks, Collectives) {
  EXPECT_THAT(error_of("shfl.sync.idx.b32 %r10, %r1, 0, 31, 1;"), HasSubstr("lacks the caller"));
  EXPECT_THAT(error_of("shfl.sync.idx.b32 %r10, %r1, 0, 31, -1;", {.threads = 20}),
              HasSubstr("lanes that have ended"));
  EXPECT_THAT(error_of("setp.lt.u32 %p10, %r1, 16; @%p10 bra $a;\n"
                       "shfl.sync.idx.b32 %r10, %r1, 20, 31, -1;\n$a:\n"
                       "setp.lt.u32 %p11, %r1, 40; @!%p11 bra $a; bar.sync 0;"),
              HasSubstr("wait for each other forever"));
  EXPECT_THAT(error_of("setp.lt.u32 %p10, %r1, 16; @%p10 bar.sync 0;"),
              HasSubstr("divergent predicate"));
  EXPECT_THAT(error_of("setp.lt.u32 %p10, %r1, 16; @%p10 mma.sync.aligned.m16n8k8.row.col.f32.f16."
                       "f16.f32 {%f10, %f11, %f12, %f13}, {%r1, %r1}, {%r1}, {%f10, %f11, %f12, "
                       "%f13};"),
              HasSubstr("forever"));
}

}  // namespace
}  // namespace fasa::ptx
