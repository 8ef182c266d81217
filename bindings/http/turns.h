// Puts the messages of a conversation where a chat template accepts them. A longer conversation
// begins like a shorter one, so that cached prompts are found.
#pragma once

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {

// For templates that refuse system messages behind the first. Those at the beginning are joined.
// The text of a later one is added to the user's message or the result before it; behind an answer
// it is added to the next message, or is a message of the user.
Json with_placed_systems(Json messages);

// For templates whose turns alternate, each call with its result: joins messages of one role, and
// fills in what a client that was interrupted left out.
Json with_alternating_turns(Json messages);

// For templates without tools: these are described in the system message, and calls and their
// results are text of the messages, in the format of Hermes. `context`: a template's input, with
// "messages" and perhaps "tools".
Json with_generic_tools(Json context);

}  // namespace fasa::serve
