// Small kernels in PTX for tests of the executor: one block, words in and out.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ptx/module.h"

namespace fasa::ptx {

struct ProgramShape {
  int threads = 32;
  int64_t shared_bytes = 0;
  Options options = {};
};

// Runs `body` with these registers: %r1 the thread, %rd1 the address of `in`, %rd2 that of the
// thread's word of the output, %rd3 that of the output; r, rs, rd, f, fd, p from 10 on are for its
// own use. Returns the output, a word for each thread.
inline std::vector<uint32_t> run_program(const std::string& body,
                                         const std::vector<uint32_t>& in = {},
                                         const ProgramShape& shape = {}) {
  Module module(fmt::format(R"(
.extern .shared .align 16 .b8 shared_memory[];
.visible .entry program(
	.param .align 8 .b8 program_param_0[16]
)
{{
	.reg .pred %p<40>;
	.reg .b16 %rs<40>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .b64 %rd<40>;
	.reg .f64 %fd<40>;
	ld.param.u64 %rd1, [program_param_0];
	ld.param.u64 %rd3, [program_param_0+8];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd4, %r1, 4;
	add.s64 %rd2, %rd3, %rd4;
{}
	ret;
}}
)",
                            body));
  std::vector<uint32_t> out(static_cast<size_t>(shape.threads), 0xabababab);
  std::vector<uint32_t> given = in;
  given.resize(given.size() + 4);
  const void* params[2] = {given.data(), out.data()};
  launch(module.entry("program"), params, sizeof(params), {1, 1, 1}, shape.threads,
         shape.shared_bytes, shape.options);
  return out;
}

// The message of the Error that a program throws.
inline std::string error_of(const std::string& body, const ProgramShape& shape = {},
                            const std::vector<uint32_t>& in = {}) {
  try {
    run_program(body, in, shape);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace fasa::ptx
