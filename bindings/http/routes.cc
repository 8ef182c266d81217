#include "bindings/http/routes.h"

#include <fmt/format.h>

#include "bindings/http/api_error.h"

namespace fasa::serve {

const Route& find_route(const Routes& routes, Call& call) {
  const std::string& path = call.request.path;
  std::string methods;  // of the path
  for (const Route& route : routes) {
    const bool named = route.path.size() > 1 && route.path.ends_with('/');
    const bool here = named ? path.size() > route.path.size() && path.starts_with(route.path)
                            : path == route.path;
    if (!here) continue;
    const std::string& method = call.request.method;
    if (method == route.method || (method == "HEAD" && route.method == "GET")) {
      call.name = named ? path.substr(route.path.size()) : "";
      return route;
    }
    methods += fmt::format("{}{}", methods.empty() ? "" : ", ", route.method);
  }
  const std::string shown = path.substr(0, 80);
  if (methods.empty()) {
    throw ApiError(404, "not_found_error",
                   fmt::format("{} {} does not exist on this server", call.request.method, shown),
                   "", "not_found");
  }
  call.exchange->add_header("Allow", methods);
  throw ApiError(405, "invalid_request_error",
                 fmt::format("{} {}; allowed: {}", call.request.method, shown, methods), "",
                 "method_not_allowed");
}

Route refused_route(std::string_view path, const char* why) {
  return {.method = "POST", .path = path, .answer = [why](Call&) {
            throw ApiError(501, "not_implemented_error", why, "", "not_implemented");
          }};
}

}  // namespace fasa::serve
