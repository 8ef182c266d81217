// How much a model is to think, by any API's fields, as the variables of chat templates.
#pragma once

#include "bindings/http/request_fields.h"

namespace fasa::serve {

// An effort such as "low" or "none", or whether to think at all; other values are left out.
// Variables that the context has stay as they are.
void set_thinking(Json& context, const Json& effort);
// chat_template_kwargs: variables by name. They win over others.
void set_template_variables(Json& context, const RequestFields& fields);

}  // namespace fasa::serve
