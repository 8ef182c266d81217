// HTTP requests and responses, without sockets.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fasa::serve {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // "/v1/models", without the query
  std::string query;   // behind the "?", or ""
  HttpHeaders headers;
  std::string body;

  // The first header of that name, in any case; "" if missing.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers = {};
  std::string content_type = "application/json";
  std::string body = {};
};

// "Not Found"; "Unknown" for a status that this server never sends.
std::string_view reason_phrase(int status);
// Names as a header's value; of many, the first.
std::string header_list(const std::vector<std::string>& names);
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace fasa::serve
