#include <string>

#include "runtime/text/answer/format_choice.h"

namespace fasa::text {

nlohmann::ordered_json format_json(const ChosenFormat& chosen) {
  using Json = nlohmann::ordered_json;
  const AnswerFormat& format = chosen.format;
  Json thoughts = Json::array();
  for (const Region& region : format.thoughts) {
    thoughts.push_back(Json::array(
        {std::string(without_blanks(region.open)), std::string(without_blanks(region.close))}));
  }
  if (const ChannelFormat& channels = format.channels; !channels.open.empty()) {
    thoughts.push_back(
        Json::array({channels.open + channels.thought + channels.message, channels.end}));
  }
  const HistoryForm& history = format.history;
  return {{"name", format.name},
          {"source", chosen.source},
          {"thoughts", std::move(thoughts)},
          {"history",
           {{"arguments", history.arguments_as_text ? "text" : "object"},
            {"call_ids", history.nine_letter_ids ? "nine letters" : "any"},
            {"calls_per_message", history.one_call ? "one" : "any"},
            {"reasoning", !history.shows_reasoning  ? "dropped"
                          : history.keeps_reasoning ? "kept"
                                                    : "of the last turn"},
            {"system_messages", history.system_anywhere ? "anywhere" : "first"}}}};
}

}  // namespace fasa::text
