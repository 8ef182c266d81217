#include "runtime/text/grammar/token_table.h"

#include <algorithm>
#include <utility>

#include "runtime/text/never_utf8.h"

namespace fasa::text {
namespace {

std::vector<std::string> bytes_of(const Tokenizer& tokenizer,
                                  const std::map<int32_t, std::string>& given) {
  std::vector<std::string> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (const auto found = given.find(id); found != given.end()) {
      bytes[i] = found->second;
    } else if (!tokenizer.is_special(id)) {
      bytes[i] = tokenizer.token_bytes(id);
      // Bytes that UTF-8 never has belong to given tokens alone.
      if (bytes[i].find_first_of(kNeverUtf8) != std::string::npos) bytes[i].clear();
    }
  }
  return bytes;
}

}  // namespace

TokenTable::TokenTable(std::vector<std::string> bytes) : index_of_(bytes.size(), -1) {
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!bytes[id].empty()) sorted_.push_back({std::move(bytes[id]), static_cast<int32_t>(id), 0});
  }
  std::sort(sorted_.begin(), sorted_.end(), [](const Token& a, const Token& b) {
    return std::pair(std::string_view(a.bytes), a.id) < std::pair(std::string_view(b.bytes), b.id);
  });
  for (size_t i = 0; i < sorted_.size(); ++i) {
    index_of_[static_cast<size_t>(sorted_[i].id)] = static_cast<int32_t>(i);
    if (i == 0) continue;
    const std::string &before = sorted_[i - 1].bytes, &own = sorted_[i].bytes;
    const size_t most = std::min(before.size(), own.size());
    const auto end =
        std::mismatch(before.begin(), before.begin() + static_cast<ptrdiff_t>(most), own.begin());
    sorted_[i].common = static_cast<uint32_t>(end.first - before.begin());
  }
}

TokenTable::TokenTable(const Tokenizer& tokenizer, const std::map<int32_t, std::string>& given)
    : TokenTable(bytes_of(tokenizer, given)) {}

std::string_view TokenTable::bytes(int32_t id) const {
  if (id < 0 || id >= end_id() || index_of_[static_cast<size_t>(id)] < 0) return "";
  return sorted_[static_cast<size_t>(index_of_[static_cast<size_t>(id)])].bytes;
}

}  // namespace fasa::text
