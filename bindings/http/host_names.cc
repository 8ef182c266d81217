#include "bindings/http/host_names.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <string_view>

namespace fasa::serve {
namespace {

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
