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

TokenTable::TokenTable(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (!bytes_[id].empty()) tokens.emplace_back(bytes_[id], static_cast<int32_t>(id));
  }
  std::sort(tokens.begin(), tokens.end());
  trie_ = TokenTrie(tokens);
  std::erase_if(tokens, [](const auto& one) { return one.first.size() <= kShortBytes; });
  long_tokens_ = TokenTrie(tokens);
}

TokenTable::TokenTable(const Tokenizer& tokenizer, const std::map<int32_t, std::string>& given)
    : TokenTable(bytes_of(tokenizer, given)) {}

std::string_view TokenTable::bytes(int32_t id) const {
  return id < 0 || id >= end_id() ? std::string_view() : bytes_[static_cast<size_t>(id)];
}

}  // namespace fasa::text
