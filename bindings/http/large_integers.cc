#include "bindings/http/large_integers.h"

#include <algorithm>

namespace fasa::serve {
namespace {

// A character of private use: at both ends of the digits.
constexpr std::string_view kMark = "\xEE\x83\xB2";
constexpr std::string_view kDigits = "0123456789";
constexpr size_t kSafeDigits = 18;  // of which every number has 64 bits

// Bytes of a number at the beginning of the text.
size_t number_size(std::string_view text) {
  return std::min(text.find_first_not_of("+-.eE0123456789"), text.size());
}

bool is_large_integer(std::string_view number) {
  if (number.starts_with('-')) number.remove_prefix(1);
  return number.size() > kSafeDigits && number[0] != '0' &&
         number.find_first_not_of(kDigits) == std::string_view::npos;
}

}  // namespace

std::string with_marked_integers(std::string_view json) {
  std::string marked;
  bool in_text = false;
  for (size_t at = 0; at < json.size();) {
    const char byte = json[at];
    size_t size = 1;
    if (in_text && byte == '\\') {
      size = std::min<size_t>(2, json.size() - at);
    } else if (byte == '"') {
      in_text = !in_text;
    } else if (!in_text) {
      size = std::max<size_t>(1, number_size(json.substr(at)));
    }
    const std::string_view part = json.substr(at, size);
    const bool large = !in_text && is_large_integer(part);
    if (large) marked.append("\"").append(kMark);
    marked += part;
    if (large) marked.append(kMark).append("\"");
    at += size;
  }
  return marked;
}

std::string without_marked_integers(std::string json) {
  for (size_t at = 0; (at = json.find(kMark, at)) != std::string::npos;) {
    const size_t begin = at + kMark.size();
    const size_t end = json.find(kMark, begin);
    if (end == std::string::npos) break;
    const std::string digits = json.substr(begin, end - begin);
    size_t first = at, last = end + kMark.size();
    const bool quoted = at > 0 && json[at - 1] == '"' && last < json.size();
    const size_t escape = quoted && at > 1 && json[at - 2] == '\\' ? 1 : 0;
    if (!quoted || !is_large_integer(digits) || json.substr(last + escape, 1) != "\"") {
      at = begin;
      continue;
    }
    first -= 1 + escape;
    last += 1 + escape;
    json.replace(first, last - first, digits);
    at = first + digits.size();
  }
  return json;
}

}  // namespace fasa::serve
