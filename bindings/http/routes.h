// What the server answers at which path.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/http/call.h"

namespace fasa::serve {

struct Route {
  std::string_view method;  // GET also answers HEAD
  std::string_view path;    // one that ends in "/" is followed by a name
  std::function<void(Call&)> answer;
  // Needs no body and waits for nothing: answered at once, by the connection's thread.
  bool quick = false;
};

using Routes = std::vector<Route>;

// The route of a request, whose name it sets. Throws ApiError: 404, or 405 naming the methods of
// the path.
const Route& find_route(const Routes& routes, Call& call);

// For paths of other servers that this one does not have: 501 with `why`.
Route refused_route(std::string_view path, const char* why);

}  // namespace fasa::serve
