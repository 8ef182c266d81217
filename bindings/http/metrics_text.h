// The server's statistics in Prometheus' text format.
#pragma once

#include <string>

#include "bindings/http/server/http_server.h"
#include "runtime/serve/engine_status.h"

namespace fasa::serve {

// `http` may be null.
std::string metrics_text(const EngineStatus& status, const HttpCounters* http,
                         const std::string& model);

}  // namespace fasa::serve
