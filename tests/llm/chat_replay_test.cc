// A conversation that goes back to where its sequence cannot be cut: the tokens before are computed
// anew, prefilled or decoded as the first time, so the cache has the bits of one that was left
// alone.
#include <gtest/gtest.h>

#include <utility>

#include "runtime/llm/generation/chat_session.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;

// A chat on a runtime of its own.
class Chat {
 public:
  Chat(Model& model, const text::Tokenizer& tokenizer, const text::ChatTemplates& templates,
       ChatOptions options)
      : runtime_(full_runtime(model)),
        session_(model, *runtime_, tokenizer, templates, std::move(options)) {
    const auto probe = static_cast<uint64_t>(runtime_->create());
    id_ = static_cast<SequenceId>(probe - 1);  // the session's
  }
  ChatSession& operator*() { return session_; }
  ChatSession* operator->() { return &session_; }

  // The stored keys and values of all tokens.
  std::vector<float> rows() const {
    const Geometry& g = runtime_->geometry();
    const int64_t tokens = runtime_->length(id_);
    EXPECT_EQ(tokens, session_.cached_tokens());
    const auto size = static_cast<size_t>(tokens * g.kv_heads * g.key_dim);
    std::vector<float> all;
    for (int layer = 0; layer < g.layers; ++layer) {
      std::vector<float> k(size), v(size);
      runtime_->read(id_, layer, 0,
                     TensorView::dense(k.data(), DType::kF32, tokens, g.kv_heads, g.key_dim),
                     TensorView::dense(v.data(), DType::kF32, tokens, g.kv_heads, g.value_dim), {});
      all.insert(all.end(), k.begin(), k.end());
      all.insert(all.end(), v.begin(), v.end());
    }
    return all;
  }

 private:
  std::unique_ptr<Runtime> runtime_;
  ChatSession session_;
  SequenceId id_{};
};

class ChatReplay : public ::testing::TestWithParam<const char*> {
 protected:
  // Cancels questions while `cancel` is true.
  Chat open(const bool& cancel) {
    ChatOptions options;
    options.answer.max_tokens = 9;
    options.prefill_chunk = 16;
    options.cancelled = [&cancel] { return cancel; };
    return {model_, tokenizer_, templates_, std::move(options)};
  }
  Chat open() { return open(never_); }

  const bool never_ = false;

  const std::unique_ptr<Device> device_ = open_test_device("cpu");
  Model model_ = Model::load(golden_dir(GetParam()), *device_, DType::kF32);
  // One id per letter; both models have a vocabulary of 64.
  const text::Tokenizer tokenizer_ = text::Tokenizer::load(golden_dir("qwen3-5"));
  const text::ChatTemplates templates_ = text::ChatTemplates::load(golden_dir("qwen3-5"));
};

TEST_P(ChatReplay, UndoneTurnsLeaveNoTrace) {
  Chat alone = open();
  alone->ask("the first");
  const ChatTurn expected = alone->ask("another");

  Chat chat = open();
  for (const char* const question : {"the first", "second", "third", "fourth"}) chat->ask(question);
  for (int turn = 0; turn < 3; ++turn) EXPECT_TRUE(chat->undo());
  const ChatTurn again = chat->ask("another");
  // Further back than the last two turns there is no snapshot: all is computed anew.
  EXPECT_EQ(again.prefilled_tokens, again.prompt_tokens);
  EXPECT_EQ(again.text, expected.text);
  EXPECT_EQ(chat.rows(), alone.rows());

  chat->undo();  // within the last two turns: from the snapshot on
  chat->undo();
  EXPECT_LT(chat->ask("the first").prefilled_tokens, expected.prompt_tokens);
}

// A cancelled question loses no record of what was computed before it.
TEST_P(ChatReplay, ACancelledReplayIsTakenUpAgain) {
  Chat alone = open();
  alone->ask("the first");
  alone->ask("another");

  bool cancel = false;
  Chat chat = open(cancel);
  for (const char* const question : {"the first", "second", "third"}) chat->ask(question);
  for (int turn = 0; turn < 2; ++turn) EXPECT_TRUE(chat->undo());
  cancel = true;
  EXPECT_EQ(chat->ask("another").end, AnswerEnd::kCancelled);
  EXPECT_EQ(chat->cached_tokens(), 16);
  cancel = false;
  chat->ask("another");
  EXPECT_EQ(chat.rows(), alone.rows());
}

INSTANTIATE_TEST_SUITE_P(Families, ChatReplay, ::testing::Values("qwen3-5", "qwen3-next"),
                         by_folder);

}  // namespace
}  // namespace fasa
