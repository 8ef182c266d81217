#include "runtime/eval/tasks/needle_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/base/utf8.h"
#include "runtime/eval/answer_run.h"

namespace fasa {
namespace {

// Tokens of an answer besides the value's: blanks before it and the mark that ends it.
constexpr int64_t kSlackTokens = 4;

// Tokens cut out of a text may begin or end within a character.
std::string without_cut_characters(std::string text) {
  while (text.starts_with(kReplacement)) text.erase(0, kReplacement.size());
  while (text.ends_with(kReplacement)) text.resize(text.size() - kReplacement.size());
  return text;
}

}  // namespace

void NeedleOptions::validate(int64_t max_positions) const {
  question.validate(max_positions);
  require(facts >= 1, "--facts", facts, "1 or more");
  require(examples >= 1, "--examples", examples, "1 or more");
  require(!depths.empty(), "--depths", "nothing", "numbers from 0 to 1");
  for (const double depth : depths) {
    require(depth >= 0 && depth <= 1, "--depths", depth, "numbers from 0 to 1");
  }
}

NeedleTask::NeedleTask(std::vector<EvalText> texts, NeedleTemplate needle,
                       const text::TextCoder& tokenizer, const NeedleOptions& options)
    : QuestionTask(tokenizer, options.question),
      texts_(std::move(texts)),
      needle_(std::move(needle)),
      options_(options) {
  for (const EvalText& text : texts_) {
    if (std::ssize(text.ids) >= longest()) continue;
    throw InputError(
        fmt::format("{}: the text has {} tokens, fewer than the context of {}; give a longer text, "
                    "or lower --context",
                    text.path, text.ids.size(), longest()));
  }
  make(0);  // throws if the context is too short or there are too few keys
}

std::string NeedleTask::title() const {
  return fmt::format("{} {}", options_.question.turns ? "turns" : "needle", longest());
}

nlohmann::json NeedleTask::setup() const {
  nlohmann::json setup = QuestionTask::setup();
  nlohmann::json texts = nlohmann::json::array();
  for (const EvalText& text : texts_) texts.push_back(text.describe());
  setup.update({{"texts", texts},
                {"facts", options_.facts},
                {"depths", options_.depths},
                {"seed", options_.seed},
                {"template", needle_.hash()}});
  return setup;
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
                                         std::span<const Question> questions,
                                         std::span<const NeedleFact> facts) const {
  const std::string text = tokenizer().decode(hay);
  std::vector<PlantedFact> planted;
  for (size_t i = 0; i < facts.size(); ++i) {
    const auto depth = questions[i].about.at("depth").get<double>();
    const auto tokens = static_cast<size_t>(depth * static_cast<double>(hay.size()));
    const size_t at = tokenizer().decode(hay.first(tokens)).size();
    planted.push_back({facts[i], word_start(text, std::min(at, text.size()))});
  }
  return encode_prompt(tokenizer(), without_cut_characters(plant(text, planted)));
}

int64_t NeedleTask::max_answer_tokens() const {
  std::mt19937_64 random(0);
  return std::ssize(tokenizer().encode(needle_.draw_value(random))) + kSlackTokens;
}

std::vector<Question> NeedleTask::questions(size_t example,
                                            std::span<const NeedleFact> facts) const {
  std::vector<Question> asked;
  const size_t count = options_.depths.size();
  for (size_t i = 0; i < facts.size(); ++i) {
    Question& question = asked.emplace_back();
    question.text = facts[i].question;
    question.answer = facts[i].written;
    question.references = {facts[i].answer};
    question.answer_tokens = max_answer_tokens();
    question.about["depth"] = options_.depths[(example + i * count / facts.size()) % count];
    if (options_.question.turns) question.about["turn"] = i + 1;
  }
  return asked;
}

int64_t NeedleTask::tokens_asked(std::span<const Question> questions) const {
  int64_t longest = 0, all = 0;
  for (const Question& question : questions) {
    const int64_t tokens = std::ssize(ids_behind(question.text)) + question.answer_tokens;
    longest = std::max(longest, tokens);
    all += tokens;
  }
  return options_.question.turns ? all : longest;
}

AskedText NeedleTask::make(size_t example) const {
  std::seed_seq seeds{options_.seed, static_cast<uint64_t>(example),
                      static_cast<uint64_t>(longest())};
  std::mt19937_64 random(seeds);
  const auto facts = needle_.draw(options_.facts, random);
  AskedText result;
  result.questions = questions(example, facts);
  const int64_t asked = tokens_asked(result.questions);
  int64_t beside = asked + std::ssize(tokenizer().prefix());
  for (const NeedleFact& fact : facts) beside += std::ssize(tokenizer().encode(fact.statement));
  if (longest() <= 2 * beside) {
    throw UsageError(fmt::format(
        "--context = {}: too short for {} facts, {} and its answer, which take "
        "{} tokens; allowed: {} or more",
        longest(), options_.facts,
        options_.question.turns ? "each with its question" : "a question", beside, 2 * beside + 1));
  }
  const auto hay = haystack(static_cast<size_t>(longest() - beside), random);
  result.ids = planted(hay, result.questions, facts);
  // Cutting the text at a statement may increase its number of tokens.
  for (size_t tokens = hay.size();;) {
    const int64_t excess = std::ssize(result.ids) + asked - longest();
    if (excess <= 0) return result;
    tokens -= std::min(tokens, static_cast<size_t>(excess));
    result.ids = planted(hay.first(tokens), result.questions, facts);
  }
}

}  // namespace fasa
