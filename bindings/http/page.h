// The page at "/": a chat, and the server's status. Its files are compiled in; it contacts this
// server alone.
#pragma once

#include <string_view>

namespace fasa::serve {

struct WebFile {
  const char* path = nullptr;  // of the request: "/", "/page/NAME"
  const char* content_type = nullptr;
  std::string_view body;
};

// Null: no file of the page has that path.
const WebFile* web_file(std::string_view path);

}  // namespace fasa::serve
