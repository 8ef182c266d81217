// A libFuzzer target of tokenizers: the input is a tokenizer.json, a NUL byte and a text. Build it
// with clang, -fsanitize=fuzzer and this file; tokenizer_fuzz_test.cc runs it over the seed corpus
// and changes of it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/tokenizer.h"

namespace {

void check(const fasa::text::Tokenizer& tokenizer, std::string_view text) {
  const size_t half = text.size() / 2;
  const fasa::text::Segment segments[] = {{text.substr(0, half)},
                                          {text.substr(half), fasa::text::Trust::kUser}};
  for (const auto& ids : {tokenizer.encode(text), tokenizer.encode(segments, true)}) {
    fasa::text::DecodeStream stream(tokenizer);
    std::string streamed;
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
      const std::string piece = stream.push(id);
      if (!fasa::is_valid_utf8(piece)) std::abort();
      streamed += piece;
    }
    streamed += stream.finish();
    if (streamed != tokenizer.decode(ids)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string_view text = end < size ? input.substr(end + 1) : "a b";
  try {
    check(fasa::text::Tokenizer::parse(input.substr(0, end), "", "fuzz"), text);
  } catch (const fasa::InputError&) {
    // The only error that a file may cause.
  }
  return 0;
}
