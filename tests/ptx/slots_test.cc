// Registers that live within one basic block share slots; all others keep their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ptx/program.h"

namespace fasa::ptx {
namespace {

using ::testing::HasSubstr;

// chainN = the thread + 1 + 2 + ... + `steps`, each sum in a register of its own.
std::string chain(int steps) {
  std::string code = ".reg .b32 %chain<2000>;\nmov.u32 %chain0, %r1;\n";
  for (int i = 1; i <= steps; ++i) {
    code += fmt::format("add.s32 %chain{}, %chain{}, {};\n", i, i - 1, i);
  }
  return code;
}

TEST(PtxSlots, RegistersOfABlockShareThem) {
  const std::string code = chain(1000);
  const std::vector<uint32_t> out = run_program(code + "st.global.u32 [%rd2], %chain1000;");
  for (uint32_t thread = 0; thread < 32; ++thread) EXPECT_EQ(out[thread], thread + 500500);
  const auto words = [](const std::string& body) {
    Module module(
        ".visible .entry program(\n\t.param .align 8 .b8 p[16]\n)\n{\n.reg .b32 %r<9>;\n" + body +
        "\nret;\n}\n");
    return module.entry("program").file_words;
  };
  // A slot of 32 words for each constant and two for the sums.
  EXPECT_LE(words("mov.u32 %r1, %tid.x;\n" + code), (1000 + 4) * 32 + 8);
}

// Lanes 16 to 31 go round the loop twice as often; what both sides write in between has slots in
// common, what lives on has not.
TEST(PtxSlots, ValuesLiveOnPastBranchesAndLoops) {
  const std::vector<uint32_t> out = run_program(R"(
  mov.u32 %r10, 0;
  add.s32 %r11, %r1, 100;
  shr.u32 %r12, %r1, 4;
  add.s32 %r12, %r12, 1;
$loop:
  add.s32 %r13, %r11, 1;
  add.s32 %r14, %r13, 1;
  add.s32 %r10, %r10, %r14;
  sub.s32 %r12, %r12, 1;
  setp.ne.s32 %p10, %r12, 0;
  @%p10 bra $loop;
  add.s32 %r15, %r10, %r11;
  st.global.u32 [%rd2], %r15;)");
  for (uint32_t thread = 0; thread < 32; ++thread) {
    EXPECT_EQ(out[thread], (thread / 16 + 1) * (thread + 102) + thread + 100);
  }
}

TEST(PtxSlots, AGuardedWriteLeavesTheOtherLanesUndefined) {
  EXPECT_THAT(error_of("add.s32 %r10, %r1, 1; add.s32 %r11, %r10, 1; st.global.u32 [%rd2], %r11;\n"
                       "setp.eq.u32 %p10, %r1, 3; @%p10 mov.u32 %r12, 7;\n"
                       "st.global.u32 [%rd2], %r12;"),
              HasSubstr("stores an undefined value"));
}

}  // namespace
}  // namespace fasa::ptx
