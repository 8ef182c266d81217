// A chat's messages as templates expect them, collected from the history of any API.
#pragma once

#include <string>

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {

// Calls belong to the assistant's message before them, thoughts to the one behind them.
class ChatHistory {
 public:
  // A message of the role system, user, assistant or tool.
  void add(Json message);
  void add(const char* role, const std::string& text) { add({{"role", role}, {"content", text}}); }
  // Text behind the assistant's last message, or a message of its own.
  void say(const std::string& text);
  void think(const std::string& text) { thoughts_ += text; }
  // `arguments`: an object, its JSON, or null for none.
  void call(const std::string& id, const std::string& name, const Json& arguments);
  // `name`: of the called function; "" = that of the call with this id, else of the next call.
  void result(const std::string& id, const std::string& name, const std::string& text);

  Json take();

 private:
  Json& assistant();
  void settle_thoughts();

  Json messages_ = Json::array();
  std::string thoughts_;  // of the next message of the assistant
};

// An assistant's reasoning, by the names that templates have for it; they choose the turns that
// show it.
void set_reasoning(Json& message, const std::string& text);

// An object, as most templates expect arguments; a text that is no object's JSON stays a text.
Json call_arguments(const Json& arguments);

}  // namespace fasa::serve
