// Requests whose drafts come from the model's head of multi-token prediction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/serve/local_server.h"

namespace fasa::serve {
namespace {

// The token that the golden models' heads predict behind itself, and another one.
const std::vector<std::pair<int32_t, float>> kTwoTokens = {{3, 100.0f}, {5, 90.0f}};

std::vector<int32_t> some_ids(int first, int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = (first + i) * (first + i) % 59;
  return ids;
}

struct Crowd {
  std::vector<std::vector<Recorder::Choice>> answers;
  EngineStatus status;
};

class MtpServeTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<LocalServer> open(std::optional<uint64_t> memory = {}) const {
    ServedModel model{.dir = llm_test::golden_dir(GetParam())};
    model.weights.mtp_head = true;
    return std::make_unique<LocalServer>(LocalServer::open("cpu", memory),
                                         EngineOptions{.max_sequences = 4, .prefill_chunk = 64},
                                         model);
  }

  // Requests with two choices each, in one batch; the third one has no drafts.
  Crowd run(LocalServer& server, DraftKind drafts, int64_t max_tokens, size_t requests = 4) const {
    std::vector<std::shared_ptr<Recorder>> recorders;
    for (const float temperature : {0.0f, 0.8f, 0.0f, 1.0f}) {
      if (recorders.size() == requests) break;
      const auto number = static_cast<int>(recorders.size());
      server.drafts = number == 2 ? DraftKind::kNone : drafts;
      Sampling sampling{.temperature = temperature, .seed = 3};
      if (number == 3) sampling.logit_bias = kTwoTokens;
      recorders.push_back(server.start(some_ids(9 * number, 60 + number), max_tokens,
                                       std::to_string(number), 2, sampling));
    }
    Crowd crowd;
    for (const auto& recorder : recorders) {
      recorder->wait();
      crowd.answers.push_back(recorder->choices());
    }
    crowd.status = server.loop().status();
    return crowd;
  }

  static void expect_same(const Crowd& given, const Crowd& expected) {
    for (size_t i = 0; i < expected.answers.size(); ++i) {
      for (size_t choice = 0; choice < expected.answers[i].size(); ++choice) {
        EXPECT_EQ(given.answers[i][choice].ids, expected.answers[i][choice].ids) << i;
        EXPECT_EQ(given.answers[i][choice].logprobs, expected.answers[i][choice].logprobs) << i;
        EXPECT_EQ(given.answers[i][choice].end, expected.answers[i][choice].end) << i;
      }
    }
  }
};

TEST_P(MtpServeTest, DraftsChangeNoAnswer) {
  const auto plain = run(*open(), DraftKind::kNone, 90);
  const auto drafted = run(*open(), DraftKind::kMtp, 90);
  expect_same(drafted, plain);
  EXPECT_EQ(plain.status.drafted_tokens, 0u);
  EXPECT_GT(drafted.status.drafted_tokens, 0u);
  EXPECT_GE(drafted.status.drafted_tokens, drafted.status.right_drafts);
}

// Drafts give their memory up first; then requests are preempted and computed again.
TEST_P(MtpServeTest, ShortMemoryChangesNoAnswer) {
  const auto plain = run(*open(), DraftKind::kNone, 150);
  const auto alone = run(*open(), DraftKind::kMtp, 150, 1);
  for (const uint64_t percent : {115, 130, 160}) {
    const uint64_t limit = alone.status.device_memory.peak_bytes * percent / 100;
    const auto server = open(limit);
    expect_same(run(*server, DraftKind::kMtp, 150), plain);
    EXPECT_LE(server->loop().status().device_memory.peak_bytes, limit);
  }
}

// A conversation goes on in the cache: the head begins again with each answer.
TEST_P(MtpServeTest, CachedConversationsGoOn) {
  const auto answers = [&](DraftKind drafts) {
    const auto server = open();
    server->drafts = drafts;
    std::vector<std::vector<int32_t>> all;
    std::vector<int32_t> prompt = some_ids(1, 63);
    for (int turn = 0; turn < 4; ++turn) {
      const Sampling sampling{.temperature = 1, .logit_bias = kTwoTokens, .seed = 4};
      all.push_back(server->start(prompt, 20, "", 1, sampling)->wait().ids);
      prompt.insert(prompt.end(), all.back().begin(), all.back().end());
      const auto more = some_ids(200 + turn, turn + 1);
      prompt.insert(prompt.end(), more.begin(), more.end());
      if (turn == 2) server->loop().evict_idle();
    }
    return all;
  };
  EXPECT_EQ(answers(DraftKind::kMtp), answers(DraftKind::kNone));
}

INSTANTIATE_TEST_SUITE_P(Models, MtpServeTest, ::testing::Values("qwen3-5-mtp", "glm4-moe-mtp"),
                         llm_test::by_folder);

}  // namespace
}  // namespace fasa::serve
