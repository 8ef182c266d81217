// Frames of streams in each API that clients wait for while a prompt is read, and the words of
// errors that they look for.
#include "bindings/http/reply_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/api/openai_request.h"

namespace fasa::serve {
namespace {

using ::testing::HasSubstr;

const Usage kUsage{.prompt_tokens = 10, .completion_tokens = 2, .cached_tokens = 7};

Json data_of(const std::string& frame) {
  const size_t at = frame.find("data: ");
  return Json::parse(at == std::string::npos ? frame : frame.substr(at + 6));
}

struct Case {
  std::function<std::unique_ptr<ReplyForm>()> make;
  Json ping;    // fields of the frame
  Json cached;  // of the usage, by its path
};

std::vector<Case> cases() {
  static const CompletionFields fields;
  const auto head = [] { return ReplyHead{"id_1", 1, "m"}; };
  return {{[=] { return make_completion_form(head(), ReplyKind::kChat, fields); },
           {{"/choices/0/delta", Json::object()}, {"/choices/0/finish_reason", nullptr}},
           "/usage/prompt_tokens_details/cached_tokens"},
          {[=] { return make_completion_form(head(), ReplyKind::kText, fields); },
           {{"/choices/0/text", ""}, {"/choices/0/finish_reason", nullptr}},
           "/usage/prompt_tokens_details/cached_tokens"},
          {[=] { return make_responses_form(head(), Json::object(), {}, nullptr); },
           {{"/type", "response.in_progress"}, {"/response/status", "in_progress"}},
           "/usage/input_tokens_details/cached_tokens"},
          {[=] { return make_llama_form(head(), 10, fields); },
           {{"/content", ""}, {"/stop", false}},
           "/tokens_cached"},
          {[=] { return make_ollama_form(head(), true); },
           {{"/message/content", ""}, {"/done", false}},
           "/prompt_cached_count"},
          {[=] { return make_messages_form(head()); },
           {{"/type", "ping"}},
           "/usage/cache_read_input_tokens"}};
}

TEST(ReplyFormTest, AStillStreamHasFramesWithoutContent) {
  for (const Case& one : cases()) {
    const Json frame = data_of(one.make()->ping());
    for (const auto& [path, value] : one.ping.items()) {
      EXPECT_EQ(frame.at(Json::json_pointer(path)), value) << frame.dump();
    }
  }
  EXPECT_EQ(make_messages_form({})->ping(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

TEST(ReplyFormTest, UsageHasTheCachedTokens) {
  AnswerMessage message;
  message.content = "Yes.";
  message.end = AnswerEnd::kEndOfSequence;
  for (const Case& one : cases()) {
    const Json whole = Json::parse(one.make()->whole({message}, kUsage));
    EXPECT_EQ(whole.at(Json::json_pointer(one.cached.get<std::string>())), 7) << whole.dump();
  }
  // At the beginning too, where clients read it.
  const Json begin = data_of(make_messages_form({})->begin(1, kUsage));
  EXPECT_EQ(begin.at(Json::json_pointer("/message/usage/cache_read_input_tokens")), 7);
  EXPECT_EQ(begin.at(Json::json_pointer("/message/usage/input_tokens")), 3);
}

TEST(ReplyFormTest, LongPromptsAreRefusedInTheWordsOfTheApi) {
  const std::pair<const char*, const char*> words[] = {
      {"/v1/messages", "prompt is too long: 300 tokens > 255 maximum"},
      {"/v1/chat/completions", "maximum context length is 256 tokens"},
      {"/v1/responses", "exceeds the context window"},
      {"/api/chat", "exceeds the context length"},
      {"/completion", "exceeds the available context size (256 tokens)"}};
  for (const auto& [path, text] : words) {
    const ApiError error = ApiError::long_prompt(path, 300, 256, "prompt");
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.code(), "context_length_exceeded");
    EXPECT_THAT(error_json_for(path, error), HasSubstr(text));
  }
  // The code is what agents read of a stream.
  const ApiError error = ApiError::long_prompt("/v1/responses", 300, 256, "input");
  const Json failed = data_of(make_responses_form({}, Json::object(), {}, nullptr)->error(error));
  EXPECT_EQ(failed.at(Json::json_pointer("/response/error/code")), "context_length_exceeded");
}

}  // namespace
}  // namespace fasa::serve
