// A libFuzzer target of the template engine: a template, a zero byte, a context.
// template_fuzz_test.cc runs it over the seed corpus and changes of it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/text/template/template.h"

namespace {

using fasa::jinja::Context;
using fasa::jinja::MarkedText;
using fasa::jinja::Template;

// Small limits, so that many quick operations together show as slow.
constexpr fasa::jinja::Limits kLimits = {
    .steps = 20'000, .depth = 64, .output_bytes = 1 << 16, .value_bytes = 1 << 20};

void check(const MarkedText& text) {
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    if (run.end <= begin) std::abort();
    begin = run.end;
  }
  if (begin != text.size() || text.size() > kLimits.output_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  Context context;
  context.now.tm_mday = 1;
  try {
    if (cut != std::string_view::npos) {
      context = fasa::jinja::parse_context(input.substr(cut + 1), "context");
      context.now.tm_mday = 1;
    }
  } catch (const fasa::InputError&) {
  }
  try {
    check(Template::parse(input.substr(0, cut), "fuzz", kLimits).render(context));
  } catch (const fasa::InputError&) {
    // The only error that a template or a context may cause.
  }
  return 0;
}
