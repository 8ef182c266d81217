#include "runtime/eval/needle_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/eval/answer_run.h"
#include "runtime/eval/decode_run.h"
#include "runtime/llm/sampler.h"
#include "runtime/text/utf8.h"

namespace fasa {
namespace {

// Tokens of an answer besides the value's: blanks before it and the mark that ends it.
constexpr int64_t kSlackTokens = 4;

// Tokens cut out of a text may begin or end within a character.
std::string without_cut_characters(std::string text) {
  while (text.starts_with(text::kReplacement)) text.erase(0, text::kReplacement.size());
  while (text.ends_with(text::kReplacement)) text.resize(text.size() - text::kReplacement.size());
  return text;
}

}  // namespace

void NeedleOptions::validate(int64_t max_positions) const {
  const auto require = [](bool ok, std::string_view flag, auto given, const std::string& allowed) {
    if (!ok) throw UsageError(fmt::format("{} = {}: allowed: {}", flag, given, allowed));
  };
  require(context >= 1 && context <= max_positions, "--context", context,
          fmt::format("1 to {}, the number of positions of the model", max_positions));
  require(facts >= 1, "--facts", facts, "1 or more");
  require(examples >= 1, "--examples", examples, "1 or more");
  require(!depths.empty(), "--depths", "nothing", "numbers from 0 to 1");
  for (const double depth : depths) {
    require(depth >= 0 && depth <= 1, "--depths", depth, "numbers from 0 to 1");
  }
}

NeedleTask::NeedleTask(std::vector<EvalText> texts, NeedleTemplate needle,
                       const text::TextCoder& tokenizer, const NeedleOptions& options)
    : texts_(std::move(texts)),
      needle_(std::move(needle)),
      tokenizer_(tokenizer),
      options_(options) {
  for (const EvalText& text : texts_) {
    if (static_cast<int64_t>(text.ids.size()) >= options_.context) continue;
    throw InputError(
        fmt::format("{}: the text has {} tokens, fewer than the context of {}; give a longer text, "
                    "or lower --context",
                    text.path, text.ids.size(), options_.context));
  }
  make(0);  // throws if the context is too short or there are too few keys
}

std::string NeedleTask::name() const { return fmt::format("needle {}", options_.context); }

nlohmann::json NeedleTask::setup() const {
  nlohmann::json texts = nlohmann::json::array();
  for (const EvalText& text : texts_) texts.push_back(text.describe());
  return {{"texts", texts},          {"context", options_.context},
          {"facts", options_.facts}, {"depths", options_.depths},
          {"seed", options_.seed},   {"template", needle_.hash()}};
}

// Takes `tokens` tokens of one of the texts.
std::span<const int32_t> NeedleTask::haystack(size_t tokens, std::mt19937_64& random) const {
  const EvalText& text = texts_[random() % texts_.size()];
  const size_t first = random() % (text.ids.size() - tokens + 1);
  return std::span(text.ids).subspan(first, tokens);
}

// Inserts the statements into the haystack at word boundaries, each at its depth, counted in
// tokens.
std::vector<int32_t> NeedleTask::planted(std::span<const int32_t> hay,
                                         std::span<const Example::Question> questions) const {
  const std::string text = tokenizer_.decode(hay);
  std::vector<PlantedFact> facts;
  for (const Example::Question& question : questions) {
    const auto tokens = static_cast<size_t>(question.depth * static_cast<double>(hay.size()));
    const size_t at = tokenizer_.decode(hay.first(tokens)).size();
    facts.push_back({question.fact, word_start(text, std::min(at, text.size()))});
  }
  return encode_prompt(tokenizer_, without_cut_characters(plant(text, facts)));
}

int64_t NeedleTask::max_answer_tokens() const {
  std::mt19937_64 random(0);
  return static_cast<int64_t>(tokenizer_.encode(needle_.draw_value(random)).size()) + kSlackTokens;
}

NeedleTask::Example NeedleTask::make(size_t example) const {
  std::seed_seq seeds{options_.seed, static_cast<uint64_t>(example),
                      static_cast<uint64_t>(options_.context)};
  std::mt19937_64 random(seeds);
  const auto facts = needle_.draw(options_.facts, random);
  size_t statements = 0, question = 0;
  for (const NeedleFact& fact : facts) {
    statements += tokenizer_.encode(fact.statement).size();
    question = std::max(question, encode_behind(tokenizer_, fact.question).size());
  }
  const int64_t asked = static_cast<int64_t>(question) + max_answer_tokens();
  const int64_t beside = asked + static_cast<int64_t>(statements + tokenizer_.prefix().size());
  if (options_.context <= 2 * beside) {
    throw UsageError(
        fmt::format("--context = {}: too short for {} facts, a question and its answer, which take "
                    "{} tokens; allowed: {} or more",
                    options_.context, options_.facts, beside, 2 * beside + 1));
  }
  const auto hay = haystack(static_cast<size_t>(options_.context - beside), random);
  Example result;
  const size_t count = options_.depths.size();
  for (size_t i = 0; i < facts.size(); ++i) {
    const double depth = options_.depths[(example + i * count / facts.size()) % count];
    result.questions.push_back({facts[i], depth});
  }
  result.text = planted(hay, result.questions);
  // Cutting the text at a statement may increase its number of tokens.
  for (size_t tokens = hay.size();;) {
    const int64_t excess = static_cast<int64_t>(result.text.size()) + asked - options_.context;
    if (excess <= 0) return result;
    tokens -= std::min(tokens, static_cast<size_t>(excess));
    result.text = planted(hay.first(tokens), result.questions);
  }
}

nlohmann::json NeedleTask::ask(const Example::Question& question, DecodeRun& run) const {
  Sampler greedy(Sampling{});
  int32_t next = 0;
  for (const int32_t id : encode_behind(tokenizer_, question.fact.question))
    next = greedy.next(run.step(id));
  std::vector<int32_t> ids = {next};
  std::string answer = tokenizer_.decode(ids);
  for (int64_t left = max_answer_tokens() - 1; left > 0 && !needle_.is_complete(answer); --left) {
    next = greedy.next(run.step(next));
    ids.push_back(next);
    answer = tokenizer_.decode(ids);
  }
  return {{"depth", question.depth},
          {"question", question.fact.question},
          {"expected", question.fact.answer},
          {"answer", answer},
          {"right", needle_.is_right(answer, question.fact.answer)}};
}

nlohmann::json NeedleTask::run(size_t example, const EvalTarget& target) {
  const Example made = make(example);
  DecodeRun whole(target.model, target.runtime, options_.context, target.prompt);
  whole.prefill(made.text);
  nlohmann::json questions = nlohmann::json::array();
  int right = 0;
  for (const auto& question : made.questions) {
    DecodeRun fork(whole, static_cast<int64_t>(made.text.size()));
    questions.push_back(ask(question, fork));
    right += questions.back().at("right").get<bool>() ? 1 : 0;
  }
  return {{"tokens", made.text.size()},
          {"questions", questions},
          {"right", right},
          {"asked", made.questions.size()}};
}

}  // namespace fasa
