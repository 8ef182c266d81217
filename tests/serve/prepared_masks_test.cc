// What a grammar allows is computed beside the steps of the model.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/grammar/schema_grammar.h"
#include "tests/serve/stepped_engine.h"

namespace fasa::serve {
namespace {

// The bundled model's tokens are bytes.
std::shared_ptr<text::TokenGrammar> grammar_of(const char* schema) {
  const text::OrderedJson json = text::OrderedJson::parse(schema);
  text::ByteGrammar rules;
  rules.seal(text::SchemaGrammar(rules, json, "schema").build());
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<text::TokenGrammar>(std::move(rules),
                                              std::make_shared<text::TokenTable>(bytes));
}

GenerationRequest request(std::shared_ptr<text::TokenGrammar> grammar,
                          std::shared_ptr<Recorder> recorder) {
  return {.prompt = bytes_of(some_text(0, 200)),
          .answer = {.max_tokens = 40, .grammar = std::move(grammar)},
          .observer = std::move(recorder)};
}

TEST(PreparedMasks, AreThereBeforeTheyAreNeeded) {
  const auto grammar = grammar_of(R"({"type": "array", "items": {"type": "integer"}})");
  const auto recorder = std::make_shared<Recorder>();
  SteppedEngine engine(LocalServer::open("cpu", {}), ServedModel{}, {.prefill_chunk = 64});
  engine.submit(request(grammar, recorder), 1);
  engine.step();
  EXPECT_TRUE(recorder->choices()[0].ids.empty());  // the prompt is not read yet
  EXPECT_TRUE(grammar->is_known(grammar->begin()));
  while (!engine.idle()) engine.step();
  EXPECT_EQ(recorder->choices()[0].ids.front(), '[');
}

// A vocabulary without brackets fits no list: only this request fails, when its token is chosen.
TEST(PreparedMasks, AnErrorIsTheRequestsOwn) {
  text::ByteGrammar rules;
  const text::OrderedJson json = text::OrderedJson::parse(R"({"type": "array"})");
  rules.seal(text::SchemaGrammar(rules, json, "schema").build());
  const auto grammar = std::make_shared<text::TokenGrammar>(
      std::move(rules),
      std::make_shared<text::TokenTable>(std::vector<std::string>{"a", "b", "c"}));
  const auto failing = std::make_shared<Recorder>(), other = std::make_shared<Recorder>();
  SteppedEngine engine(LocalServer::open("cpu", {}), ServedModel{}, {});
  engine.submit(request(grammar, failing), 1);
  engine.submit(request(nullptr, other), 2);
  while (!engine.idle()) engine.step();
  EXPECT_EQ(failing->error_kind(), ErrorKind::kInput);
  EXPECT_EQ(other->error_kind(), std::nullopt);
  EXPECT_FALSE(other->choices()[0].ids.empty());
}

}  // namespace
}  // namespace fasa::serve
