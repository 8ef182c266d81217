#include "bindings/http/server/origins.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <charconv>

#include "runtime/base/error.h"

namespace fasa::serve {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::optional<int> parse_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && port > 0 && port <= 65535 ? std::optional(port) : std::nullopt;
}

// Accepts "name", "name:80" and "[::1]:80". The default port is that of `scheme`.
std::optional<Origin> with_scheme(std::string scheme, std::string_view host) {
  if (host.empty() || host.find_first_of("/?#@ ,\\") != std::string_view::npos) return std::nullopt;
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  Origin origin{.scheme = std::move(scheme), .host = lower_case(host.substr(0, colon))};
  origin.port = origin.scheme == "https" ? 443 : 80;
  if (colon != std::string_view::npos) {
    const auto port = parse_port(host.substr(colon + 1));
    if (!port) return std::nullopt;
    origin.port = *port;
  }
  return origin.host.empty() ? std::nullopt : std::optional(std::move(origin));
}

// "[::1]:80" -> "::1", "name:80" -> "name".
std::string_view without_port(std::string_view host) {
  if (!host.empty() && host.front() == '[') {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? std::string_view() : host.substr(1, end - 1);
  }
  return host.substr(0, host.rfind(':'));
}

bool is_address(std::string_view name) {
  boost::system::error_code error;
  boost::asio::ip::make_address(std::string(name), error);
  return !error;
}

}  // namespace

std::optional<Origin> parse_origin(std::string_view text) {
  constexpr std::string_view kMark = "://";
  const size_t mark = text.find(kMark);
  if (mark == std::string_view::npos) return std::nullopt;
  std::string scheme = lower_case(text.substr(0, mark));
  if (scheme != "http" && scheme != "https") return std::nullopt;
  return with_scheme(std::move(scheme), text.substr(mark + kMark.size()));
}

bool is_allowed_origin(std::string_view origin, std::string_view host_header,
                       const HttpOptions& options) {
  const auto parsed = parse_origin(origin);
  if (!parsed) return false;
  // The Host header names no scheme, and a proxy may have terminated TLS: use the origin's scheme.
  if (with_scheme(parsed->scheme, host_header) == parsed) return true;
  return std::any_of(options.allowed_origins.begin(), options.allowed_origins.end(),
                     [&](const std::string& allowed) { return parse_origin(allowed) == parsed; });
}

void check_allowed_origins(const HttpOptions& options) {
  for (const std::string& origin : options.allowed_origins) {
    if (parse_origin(origin)) continue;
    throw UsageError(
        fmt::format("--allowed-origin {}; allowed: a scheme, a host and a port, as in "
                    "https://app.example or http://app.example:3000",
                    origin));
  }
}

bool is_loopback(const std::string& host) {
  if (host.starts_with("unix:") || host == "localhost") return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

bool is_allowed_host(const std::string& header, const HttpOptions& options) {
  const std::string name(without_port(header));
  const auto is_name = [&](const std::string& allowed) {
    return equal_ignoring_case(name, allowed);
  };
  return is_address(name) || is_name("localhost") || (!name.empty() && is_name(options.host)) ||
         std::any_of(options.allowed_hosts.begin(), options.allowed_hosts.end(), is_name);
}

}  // namespace fasa::serve
