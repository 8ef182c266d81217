#include "runtime/text/template/functions/text_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {
namespace {

const Value& field_value(std::string_view field, size_t* next, const Arguments& arguments) {
  size_t place = 0;
  const auto read = std::from_chars(field.data(), field.data() + field.size(), place);
  const bool numbered = !field.empty() && read.ptr == field.data() + field.size();
  if (field.empty() || numbered) {
    if (field.empty()) place = (*next)++;
    if (place < arguments.by_place.size()) return arguments.by_place[place];
    throw Failure(fmt::format("format: there is no argument {}", place));
  }
  if (field.find_first_of("!:.[{") != std::string_view::npos) {
    throw Failure(
        fmt::format("format: the field {{{}}} is not supported; allowed: a name or number", field));
  }
  const auto found = std::find_if(arguments.by_name.begin(), arguments.by_name.end(),
                                  [&](const auto& argument) { return argument.first == field; });
  if (found == arguments.by_name.end()) {
    throw Failure(fmt::format("format: there is no argument {}", field));
  }
  return found->second;
}

}  // namespace

Cuts split_at(std::string_view text, std::string_view separator, int64_t most) {
  if (separator.empty()) throw Failure("split: the separator is empty");
  Cuts cuts;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(cuts.size()) < most) {
    const size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) break;
    cuts.emplace_back(begin, end);
    begin = end + separator.size();
  }
  cuts.emplace_back(begin, text.size());
  return cuts;
}

Cuts split_at_space(std::string_view text, int64_t most) {
  const auto run_end = [&](size_t at, bool space) {
    while (at < text.size() && is_space(character_at(text, at).code) == space) {
      at += character_at(text, at).size;
    }
    return at;
  };
  Cuts cuts;
  for (size_t begin = run_end(0, true); begin < text.size();) {
    if (most >= 0 && static_cast<int64_t>(cuts.size()) == most) {
      cuts.emplace_back(begin, text.size());
      break;
    }
    const size_t end = run_end(begin, false);
    cuts.emplace_back(begin, end);
    begin = run_end(end, true);
  }
  return cuts;
}

MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to,
                    int64_t most, Work& work) {
  const std::string& bytes = text.bytes();
  work.step_bytes(bytes.size());
  MarkedText result;
  size_t begin = 0, search = 0;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    const size_t found = bytes.find(from, search);
    if (found == std::string::npos) break;
    work.step();
    result.append(text, begin, found);
    result.append(to);
    work.check_size(result.size());
    begin = found + from.size();
    // An empty text matches before each character and at the end.
    search = begin;
    if (from.empty()) {
      if (begin == bytes.size()) break;
      search += character_at(bytes, begin).size;
    }
  }
  result.append(text, begin, bytes.size());
  return result;
}

MarkedText formatted(const MarkedText& format, const Arguments& arguments, Work& work) {
  const std::string& bytes = format.bytes();
  MarkedText result;
  size_t next = 0;
  bool numbered = false, counted = false;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    result.append(format, at, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      result.append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t end = bytes.find('}', brace);
    if (bytes[brace] == '}' || end == std::string::npos) {
      throw Failure("format: a brace has no match");
    }
    const std::string_view field = std::string_view(bytes).substr(brace + 1, end - brace - 1);
    numbered |= !field.empty() && field[0] >= '0' && field[0] <= '9';
    counted |= field.empty();
    if (numbered && counted) throw Failure("format: numbered and unnumbered fields are mixed");
    result.append(str_of(field_value(field, &next, arguments), work));
    work.check_size(result.size());
    at = end + 1;
  }
  return result;
}

}  // namespace fasa::jinja
