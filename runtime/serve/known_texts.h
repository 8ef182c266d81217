// Token ids of earlier texts. Encoding an answer's text may give other tokens than the model chose.
// If a prompt continues an answer of this server, the original ids are used, so that the cache's
// prefix matches.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::serve {

// Not thread-safe.
class KnownTexts {
 public:
  // `bytes`: limit for texts and ids; the least recently used are forgotten.
  explicit KnownTexts(size_t bytes) : max_bytes_(bytes) {}

  struct Known {
    std::string salt;
    std::string text;
    std::vector<int32_t> ids;
    size_t bytes() const { return salt.size() + text.size() + ids.size() * sizeof(int32_t); }
  };

  void remember(std::string salt, std::string text, std::vector<int32_t> ids);
  // The longest known text of that salt that is a prefix of `prompt`; null: none.
  const Known* find(std::string_view salt, std::string_view prompt);

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<Known> known_;  // most recently used first
};

}  // namespace fasa::serve
