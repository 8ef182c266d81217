#include "tests/support/ptx/module.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace fasa::ptx {
namespace {

// "name" of "... .b8 name[32]"
std::string declared_name(std::string_view text) {
  const size_t bracket = text.find('[');
  const size_t begin = text.find_last_of(" \t", bracket) + 1;
  return std::string(text.substr(begin, bracket - begin));
}
int declared_size(std::string_view text) {
  return std::atoi(std::string(text.substr(text.find('[') + 1)).c_str());
}
int lines_in(std::string_view text) { return static_cast<int>(std::ranges::count(text, '\n')); }

}  // namespace

Module::Module(std::string text) : text_(std::move(text)) {
  find_entries();
  read_globals();
}

void Module::find_entries() {
  constexpr std::string_view kEntry = ".entry ";
  int line = 1;
  size_t counted = 0;
  for (size_t at = 0; (at = text_.find(kEntry, at)) != std::string::npos;) {
    const size_t name = at + kEntry.size();
    const size_t open = text_.find('(', at);
    const size_t end = text_.find("\n}", open);
    if (open == std::string::npos || end == std::string::npos) throw Error("an entry has no end");
    line += lines_in(std::string_view(text_).substr(counted, at - counted));
    counted = at;
    locations_[std::string(trimmed(std::string_view(text_).substr(name, open - name)))] = {at, end,
                                                                                           line};
    at = end;
  }
}

// ".global .align 4 .b8 table[24] = {1, 0x2, ...};"
void Module::read_globals() {
  for (size_t at = 0; (at = text_.find("\n.global ", at)) != std::string::npos; ++at) {
    const std::string text = text_.substr(at, text_.find(';', at) - at);
    const size_t equal = text.find('{');
    if (equal == std::string::npos || text.find(".b8") == std::string::npos) {
      throw Error("unknown constant: " + text);
    }
    std::vector<uint8_t>& bytes = globals_[declared_name(text)];
    bytes.resize(static_cast<size_t>(declared_size(text)));
    const char* next = text.c_str() + equal + 1;
    for (uint8_t& byte : bytes) {
      char* end = nullptr;
      byte = static_cast<uint8_t>(std::strtol(next, &end, 0));
      next = end + 1;
    }
  }
}

std::vector<std::string> Module::names() const {
  std::vector<std::string> names;
  for (const auto& [name, location] : locations_) names.push_back(name);
  return names;
}

const Entry& Module::entry(const std::string& name) {
  const auto known = entries_.find(name);
  if (known != entries_.end()) return known->second;
  const auto found = locations_.find(name);
  if (found == locations_.end()) throw Error("no entry " + name);
  const Location& location = found->second;
  const auto all = std::string_view(text_).substr(location.begin, location.end - location.begin);
  Entry entry;
  entry.name = name;
  Decoder decoder(globals_, entry);
  const size_t open = all.find('(');
  const std::string_view param = all.substr(open + 1, all.find("\n)", open) - open - 1);
  entry.param_bytes = declared_size(param);  // one struct
  decoder.declare_param(declared_name(param));
  if (const size_t most = all.find(".maxntid"); most != std::string_view::npos) {
    entry.max_threads = std::atoi(std::string(all.substr(most + 8, 12)).c_str());
  }
  for (size_t at = 0; (at = text_.find(".extern .shared", at)) != std::string::npos; ++at) {
    decoder.declare_shared(declared_name(std::string_view(text_).substr(at, 200)));
  }
  const size_t brace = all.find("\n{") + 1;
  decoder.decode(all.substr(brace + 1), location.line + lines_in(all.substr(0, brace)));
  return entries_.emplace(name, std::move(entry)).first->second;
}

}  // namespace fasa::ptx
