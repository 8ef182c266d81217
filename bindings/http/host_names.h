// Checks Host headers, against DNS rebinding: a foreign web page must not reach a loopback server
// through a name that resolves to 127.0.0.1.
#pragma once

#include <string>

#include "bindings/http/http_server.h"

namespace fasa::serve {

// Accepts addresses, localhost, the name that the server is bound to and options.allowed_hosts. The
// port is ignored.
bool is_allowed_host(const std::string& header, const HttpOptions& options);

}  // namespace fasa::serve
