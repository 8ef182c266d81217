// Which Host headers are answered: a page of some other site must not reach a server on loopback by
// having its own name resolve to 127.0.0.1.
#pragma once

#include <string>

#include "bindings/http/http_server.h"

namespace fasa::serve {

// Addresses, localhost, the name that the server was bound to and options.allowed_hosts pass; a
// port behind the name does not matter.
bool is_allowed_host(const std::string& header, const HttpOptions& options);

}  // namespace fasa::serve
