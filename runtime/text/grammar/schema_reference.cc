#include "runtime/text/grammar/schema_reference.h"

#include <charconv>

namespace fasa::text {
namespace {

// "#/a%20b" as "#/a b".
std::string percent_decoded(const std::string& text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const char* const digits = text.data() + at + 1;
    if (text[at] == '%' && at + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      at += 2;
    } else {
      decoded += text[at];
    }
  }
  return decoded;
}

}  // namespace

const nlohmann::ordered_json* reference_target(const nlohmann::ordered_json& root,
                                               const std::string& reference) {
  using Json = nlohmann::ordered_json;
  if (reference == "#") return &root;
  for (const std::string& pointer : {reference, percent_decoded(reference)}) {
    try {
      if (pointer.starts_with("#/")) return &root.at(Json::json_pointer(pointer.substr(1)));
    } catch (const Json::exception&) {
      // It does not resolve.
    }
  }
  return nullptr;
}

}  // namespace fasa::text
