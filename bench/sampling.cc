// Time to draw a token: sampling [--benchmark_filter=...]. Logits: normal, standard deviation 2.5.
// rows: tokens of 16 rows, one after the other (cores 1) or side by side (0: all).
// free_text: a token of an answer's text with tools that may be called, whose grammar waits for the
// mark of a call, beside the same token without the grammar. Both are timed in turns; `ratio` is
// that of their medians.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/parallel.h"
#include "runtime/llm/generation/answer.h"
#include "runtime/llm/generation/sampler.h"
#include "runtime/text/answer/call_grammar.h"

namespace fasa::bench {
namespace {

void draw(benchmark::State& state, const Sampling& sampling) {
  std::vector<float> logits(static_cast<size_t>(state.range(0)));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  for (float& logit : logits) logit = normal(random);
  Sampler sampler(sampling);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.next(logits));
}

#define FASA_DRAW(name, ...)                           \
  BENCHMARK_CAPTURE(draw, name, Sampling{__VA_ARGS__}) \
      ->ArgName("vocabulary")                          \
      ->Arg(32000)                                     \
      ->Arg(151936)                                    \
      ->Arg(262144)                                    \
      ->Unit(benchmark::kMillisecond)

FASA_DRAW(greedy, .temperature = 0);
FASA_DRAW(temperature_1, .temperature = 1);
FASA_DRAW(top_p_95, .temperature = 1, .top_p = 0.95f);
FASA_DRAW(top_p_95_min_p_05, .temperature = 1, .top_p = 0.95f, .min_p = 0.05f);
FASA_DRAW(top_k_40, .temperature = 1, .top_k = 40);

void rows(benchmark::State& state) {
  constexpr size_t kRows = 16;
  std::vector<float> logits(static_cast<size_t>(state.range(0)));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  for (float& logit : logits) logit = normal(random);
  std::vector<std::unique_ptr<Sampler>> samplers;
  for (size_t i = 0; i < kRows; ++i) {
    samplers.push_back(
        std::make_unique<Sampler>(Sampling{.temperature = 1, .top_p = 0.95f, .seed = i}));
  }
  const bool side_by_side = state.range(1) != 1;
  const auto draw_row = [&](size_t i) { benchmark::DoNotOptimize(samplers[i]->next(logits)); };
  for (auto _ : state) {
    if (side_by_side) parallel_for(size_t{0}, kRows, draw_row);
    for (size_t i = 0; i < kRows && !side_by_side; ++i) draw_row(i);
  }
}
BENCHMARK(rows)
    ->ArgNames({"vocabulary", "cores"})
    ->ArgsProduct({{151936, 262144}, {1, 0}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Words of letters, and the marks of calls behind them.
text::Tokenizer made_up_tokenizer(int vocabulary) {
  using Json = nlohmann::ordered_json;
  Json vocab = Json::object(), added = Json::array();
  const std::vector<std::string> marks = {"<think>", "</think>", "<tool_call>", "</tool_call>"};
  const int words = vocabulary - static_cast<int>(marks.size());
  for (int id = 0; id < words; ++id) {
    std::string word;
    for (int left = id; word.empty() || left > 0; left /= 26) {
      word += static_cast<char>('a' + left % 26);
    }
    vocab[fmt::format("{}{}", id % 3 == 0 ? "\u0120" : "", word + std::string(id % 2, '_'))] = id;
  }
  for (int id = words; id < vocabulary; ++id) {
    added.push_back({{"id", id},
                     {"content", marks[static_cast<size_t>(id - words)]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", false}});
  }
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  const Json json = {{"version", "1.0"},
                     {"added_tokens", added},
                     {"pre_tokenizer", bytes},
                     {"decoder", bytes},
                     {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return text::Tokenizer::parse(json.dump(), "", "made up");
}

// The options of an answer whose model may call ten functions.
AnswerOptions options_with_tools(const text::Tokenizer& tokenizer) {
  auto reading = std::make_shared<text::AnswerReading>();
  reading->format =
      std::make_shared<const text::CodedFormat>(*text::find_answer_format("hermes"), tokenizer);
  for (int i = 0; i < 10; ++i) {
    reading->functions.push_back(
        {fmt::format("function_{}", i),
         nlohmann::ordered_json::parse(R"({"type": "object", "properties": {
             "path": {"type": "string", "maxLength": 100}, "line": {"type": "integer"},
             "mode": {"enum": ["read", "write"]}}, "required": ["path"]})")});
  }
  text::ByteGrammar rules;
  rules.seal(
      text::CallGrammar(rules, *reading->format, false).behind_mark(reading->functions, false));
  std::map<int32_t, std::string> given;
  for (const auto& mark : reading->format->codes.marks()) given[mark.id] = mark.code;
  AnswerOptions options;
  options.max_tokens = INT32_MAX;
  options.sampling.temperature = 0;
  options.reading = std::move(reading);
  options.grammar = std::make_shared<text::TokenGrammar>(
      std::move(rules), std::make_shared<text::TokenTable>(tokenizer, given));
  options.grammar_of_calls = true;
  return options;
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void free_text(benchmark::State& state) {
  constexpr int kAnswer = 500;  // tokens
  const auto vocabulary = static_cast<size_t>(state.range(0));
  const text::Tokenizer tokenizer = made_up_tokenizer(static_cast<int>(vocabulary));
  const AnswerOptions with = options_with_tools(tokenizer);
  AnswerOptions without = with;
  without.grammar = nullptr;
  without.grammar_of_calls = false;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  std::vector<double> times[2];  // of a token, seconds
  std::unique_ptr<Answer> answers[2];
  int token = kAnswer;
  for (auto _ : state) {
    if (token++ == kAnswer) {
      answers[0] = std::make_unique<Answer>(without, std::span<const int32_t>(), &tokenizer,
                                            std::span<const int32_t>());
      answers[1] = std::make_unique<Answer>(with, std::span<const int32_t>(), &tokenizer,
                                            std::span<const int32_t>());
      token = 1;
    }
    std::swap(logits[random() % (vocabulary - 4)], logits[random() % (vocabulary - 4)]);
    for (const int turn : {token % 2, 1 - token % 2}) {
      const auto begun = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(answers[turn]->take(logits));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      times[turn].push_back(took.count());
    }
  }
  const double plain = median(times[0]), tools = median(times[1]);
  state.counters["plain_us"] = plain * 1e6;
  state.counters["tools_us"] = tools * 1e6;
  state.counters["ratio"] = tools / plain;
}
BENCHMARK(free_text)
    ->ArgName("vocabulary")
    ->Arg(150000)
    ->Iterations(5000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fasa::bench

BENCHMARK_MAIN();
