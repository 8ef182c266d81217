// API keys from a file, one a line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::serve {

class ApiKeys {
 public:
  ApiKeys() = default;  // no keys: every request is allowed
  // Ignores blank lines and lines that begin with #. Throws InputError if the file cannot be read,
  // is accessible to users other than its owner and group, or holds no key.
  static ApiKeys load(const std::string& file);
  explicit ApiKeys(std::vector<std::string> keys);
  // Turns the salts into hashes of the keys, equal for equal `salt`: stored sessions stay valid
  // when keys are added to the file. Throws InputError for a key that cannot be hashed.
  void hash_with(const std::string& salt);

  bool empty() const { return keys_.empty(); }
  // The salt of the key in an Authorization header; "" if no keys are configured, nothing if the
  // header has no known key. Takes the same time for all headers of one length.
  std::optional<std::string> salt_of(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
  std::vector<std::string> salts_;  // one per key
};

}  // namespace fasa::serve
