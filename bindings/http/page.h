// The page at "/": a chat, and the server's status. One file; it contacts only this server.
#pragma once

namespace fasa::serve {

extern const char* const kPage;

}  // namespace fasa::serve
