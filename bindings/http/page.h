// The page at "/": a chat, and what the server holds. One file, no network but this server.
#pragma once

namespace fasa::serve {

extern const char* const kPage;

}  // namespace fasa::serve
