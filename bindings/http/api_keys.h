// Who may ask: the keys of a file, one a line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::serve {

class ApiKeys {
 public:
  ApiKeys() = default;  // none: everybody may
  // Blank lines and lines that begin with # are left out. Throws InputError: the file can't be read,
  // is readable for others than its owner and group, or holds no key.
  static ApiKeys load(const std::string& file);
  explicit ApiKeys(std::vector<std::string> keys);
  // Salts become hashes of the keys, the same wherever `salt` is the same: what is kept under them
  // outlives a change of the file. Throws InputError for a key that can't be hashed.
  void hash_with(const std::string& salt);

  bool empty() const { return keys_.empty(); }
  // The salt of the key that an Authorization header gives; "" where there are no keys, none for a
  // header without a known one. Takes as long for any header of the same length.
  std::optional<std::string> salt_of(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
  std::vector<std::string> salts_;  // of each
};

}  // namespace fasa::serve
