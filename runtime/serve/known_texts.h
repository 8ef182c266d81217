// Which ids a text was made of. An answer's text need not encode to the tokens that the model chose for
// it; where a prompt goes on from an answer that was given here, their ids are taken as they are, and
// the cache's prefix holds.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::serve {

// One thread at a time.
class KnownTexts {
 public:
  // `bytes`: of texts and ids, at most; those used longest ago are forgotten.
  explicit KnownTexts(size_t bytes) : max_bytes_(bytes) {}

  struct Known {
    std::string salt;
    std::string text;
    std::vector<int32_t> ids;
    size_t bytes() const { return salt.size() + text.size() + ids.size() * sizeof(int32_t); }
  };

  void remember(std::string salt, std::string text, std::vector<int32_t> ids);
  // The longest known text of that salt that `prompt` begins with; null: none.
  const Known* find(std::string_view salt, std::string_view prompt);

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<Known> known_;  // used last first
};

}  // namespace fasa::serve
