// Tools for a chat template that has none: they are described in the system message, and calls and
// their results are text of the messages, in the format of Hermes.
#pragma once

#include "bindings/http/request_fields.h"

namespace fasa::serve {

// `context`: a template's input, with "messages" and perhaps "tools".
Json with_generic_tools(Json context);

}  // namespace fasa::serve
