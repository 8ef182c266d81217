// Input: a file of API keys, a NUL byte (the input's last one), and a client's Authorization
// header.
#include <sys/stat.h>

#include <cstdlib>

#include "bindings/http/api_keys.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(api_keys) {
  static const FuzzFolder folder;
  const std::string_view text = text_of(data, size);
  const size_t cut = std::min(text.find('\0'), text.size());
  const std::string file = folder.write("keys", std::string(text.substr(0, cut)));
  ::chmod(file.c_str(), 0600);
  const auto keys = fasa::serve::ApiKeys::load(file);
  if (keys.salt_of("")) std::abort();  // an empty key must never match
  keys.salt_of(text.substr(std::min(cut + 1, text.size())));
}
