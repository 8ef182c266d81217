// Time to find what a grammar allows in a state that is new to it: grammar_masks MODEL
// [--benchmark_filter=...]. MODEL: whose vocabulary; a folder or a GGUF file.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/llm/generation/model_tokenizer.h"
#include "runtime/text/grammar/schema_grammar.h"
#include "runtime/text/grammar/token_grammar.h"

namespace fasa::bench {
namespace {

// Processor time, to which other work on the machine adds little.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int32_t token_of(const text::TokenTable& tokens, char byte) {
  int32_t id = 0;
  while (tokens.bytes(id) != std::string_view(&byte, 1)) ++id;
  return id;
}

// The longest of the states of `text`, which no text reached before, and their median; each byte is
// a token.
void allow(benchmark::State& state, const std::shared_ptr<const text::TokenTable>& tokens,
           const char* schema, std::string_view text) {
  const auto json = text::OrderedJson::parse(schema);
  for (auto _ : state) {
    text::ByteGrammar rules;
    rules.seal(text::SchemaGrammar(rules, json, "schema").build());
    text::TokenGrammar grammar(std::move(rules), tokens);
    text::TokenGrammar::Text written = grammar.begin();
    std::vector<double> times;
    for (const char letter : text) {
      const double begin = thread_seconds();
      benchmark::DoNotOptimize(grammar.allowed(written));
      times.push_back(thread_seconds() - begin);
      grammar.push(written, token_of(*tokens, letter));
    }
    std::sort(times.begin(), times.end());
    state.SetIterationTime(times.back());
    state.counters["median_ms"] = 1e3 * times[times.size() / 2];
  }
}

void add_grammars(const std::string& model) {
  const text::Tokenizer tokenizer = require_tokenizer(model);
  const auto tokens =
      std::make_shared<const text::TokenTable>(tokenizer, std::map<int32_t, std::string>());
  const auto add = [&](const char* name, const char* schema, std::string_view text) {
    benchmark::RegisterBenchmark(name, allow, tokens, schema, text)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("allow/object", R"({"type": "object"})", R"({"name": "Ada", "born": 1815, "x": [0.5)");
  add("allow/counted_string", R"({"type": "string", "maxLength": 200})", "\"Ada and Charles");
  add("allow/pattern", R"({"type": "string", "pattern": "^[A-Z][a-z]{2,40}( [A-Z][a-z]+)*$"})",
      "\"Ada Lovelace");
}

}  // namespace
}  // namespace fasa::bench

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  if (count != 2) {
    std::fputs("usage: grammar_masks MODEL [--benchmark_filter=...]\n", stderr);
    return 2;
  }
  fasa::bench::add_grammars(arguments[1]);
  benchmark::RunSpecifiedBenchmarks();
}
