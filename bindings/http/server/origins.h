// Which web pages may send requests: the Origin header against DNS names and ports; and the Host
// header against DNS rebinding, by which a foreign page reaches a loopback server through a name
// that resolves to 127.0.0.1.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bindings/http/server/http_server.h"

namespace fasa::serve {

// "https://app.example:8443", in lower case; a port that is left out is its scheme's.
struct Origin {
  std::string scheme, host;
  int port = 0;

  bool operator==(const Origin&) const = default;
};

// Returns nothing if the text is not an http or https origin; "null" is not one.
std::optional<Origin> parse_origin(std::string_view text);

// Whether a page of that origin may send requests to the server: a page of the server itself, which
// has the host and port of the Host header, or one of options.allowed_origins.
bool is_allowed_origin(std::string_view origin, std::string_view host_header,
                       const HttpOptions& options);

// Throws UsageError for an entry of options.allowed_origins that is no origin.
void check_allowed_origins(const HttpOptions& options);

// Accepts addresses, localhost, the name that the server is bound to and options.allowed_hosts. The
// port is ignored.
bool is_allowed_host(const std::string& header, const HttpOptions& options);

}  // namespace fasa::serve
