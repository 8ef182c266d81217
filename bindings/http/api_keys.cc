#include "bindings/http/api_keys.h"

#include <crypt.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"

namespace fasa::serve {
namespace {

constexpr std::string_view kBearer = "Bearer ";

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace

ApiKeys ApiKeys::load(const std::string& file) {
  std::istringstream lines(read_file(file));
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0) {
    throw InputError(fmt::format(
        "{}: every user of this machine can read these keys; run chmod 600 on the file", file));
  }
  std::vector<std::string> keys;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty())
    throw InputError(fmt::format("{}: the file has no keys; write one key per line", file));
  return ApiKeys(std::move(keys));
}

ApiKeys::ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (size_t i = 0; i < keys_.size(); ++i) salts_.push_back(fmt::format("key {}", i + 1));
}

// A slow password hash (SHA-512, 5,000 rounds), so that a leaked hash does not reveal the key.
void ApiKeys::hash_with(const std::string& salt) {
  const auto data = std::make_unique<crypt_data>();
  for (size_t i = 0; i < keys_.size(); ++i) {
    const char* const hash = ::crypt_r(keys_[i].c_str(), ("$6$" + salt).c_str(), data.get());
    if (hash == nullptr || hash[0] == '*') {
      throw InputError(fmt::format(
          "API key {} cannot be hashed: {}; allowed with sessions on disk: up to 511 bytes", i + 1,
          std::strerror(errno)));
    }
    salts_[i] = hash;
  }
}

std::optional<std::string> ApiKeys::salt_of(std::string_view authorization) const {
  if (keys_.empty()) return "";
  const bool bearer = authorization.starts_with(kBearer);
  const std::string_view given = bearer ? authorization.substr(kBearer.size()) : std::string_view();
  std::optional<std::string> salt;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (equal_in_constant_time(keys_[i], given)) salt = salts_[i];
  }
  return salt;
}

}  // namespace fasa::serve
