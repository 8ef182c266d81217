#include "runtime/llm/generation/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/llm/generation/auto_chunk.h"
#include "runtime/llm/generation/drafted_step.h"
#include "runtime/llm/generation/open_drafts.h"
#include "runtime/llm/generation/open_prompt.h"
#include "runtime/text/answer/format_choice.h"

namespace fasa {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ChatSession::ChatSession(Model& model, Runtime& runtime, const text::Tokenizer& tokenizer,
                         const text::ChatTemplates& templates, ChatOptions options)
    : model_(model),
      runtime_(runtime),
      tokenizer_(tokenizer),
      templates_(templates),
      options_(std::move(options)) {
  options_.answer.validate();
  const text::AnswerFormat format = text::choose_answer_format(templates).format;
  history_ = format.history;
  format_ = std::make_shared<const text::CodedFormat>(format, tokenizer);
  if (options_.prefill_chunk < 1 && options_.prefill_chunk != kAutomaticChunk) {
    throw UsageError(fmt::format("prefill_chunk = {}; allowed: 1 or more", options_.prefill_chunk));
  }
  if (options_.answer.drafts == DraftKind::kMtp) mtp_.emplace(model, runtime.traits().row_dtype);
  branches_.push_back(std::make_unique<Branch>(runtime_));
  runtime_.set_rollback_tokens(branches_[0]->sequence.id(), options_.rollback_tokens);
  if (!options_.system.empty()) {
    branches_[0]->messages.push_back({"system", options_.system});
  }
}

std::vector<int32_t> ChatSession::prompt_ids(const text::Tokenizer& tokenizer,
                                             const text::ChatTemplates& templates,
                                             std::span<const text::ChatMessage> messages,
                                             const std::tm& now) {
  return tokenizer.encode(templates.render(messages, now).segments(), false);
}

// The text of an answer may encode to other tokens than the model chose. If the prompt continues
// the last one and its answer with a control token, which no piece of text can cross, the known ids
// are used as they are.
ChatSession::Encoded ChatSession::encode(const text::ChatPrompt& prompt,
                                         const Branch& branch) const {
  const bool goes_on = !branch.known_text.empty() && prompt.text().starts_with(branch.known_text);
  if (goes_on) {
    const auto rest = tokenizer_.encode(prompt.segments(branch.known_text.size()), false);
    if (!rest.empty() && tokenizer_.is_special(rest[0])) {
      Encoded encoded{branch.known_ids, true};
      encoded.ids.insert(encoded.ids.end(), rest.begin(), rest.end());
      return encoded;
    }
  }
  return {tokenizer_.encode(prompt.segments(), false), false};
}

void ChatSession::remember(Branch& branch, const text::ChatPrompt& prompt, const Encoded& encoded,
                           const Answer& answer) const {
  branch.before.push_back(encoded.goes_on ? Known{branch.known_text.size(), branch.known_ids.size()}
                                          : Known{});
  branch.known_text = prompt.text();
  branch.known_ids = encoded.ids;
  // Text after a stop string is in the tokens but not in the answer's text.
  if (answer.end() == AnswerEnd::kStopString) return;
  branch.known_text += answer.text();
  branch.known_ids.insert(branch.known_ids.end(), answer.tokens().begin(), answer.tokens().end());
}

int64_t ChatSession::room_for_answer(size_t prompt_tokens) const {
  const int64_t positions = model_.config().max_positions;
  const bool bounded = options_.max_context > 0 && options_.max_context < positions;
  const int64_t most = bounded ? options_.max_context : positions;
  const int64_t room = most - static_cast<int64_t>(prompt_tokens);
  if (room < 1) {
    throw UsageError(
        fmt::format("the conversation has {} tokens, but {}; undo some turns, or start a new "
                    "conversation",
                    prompt_tokens,
                    bounded ? fmt::format("its context ends after {}", most)
                            : fmt::format("the model has {} positions", most)));
  }
  return std::min(room, options_.answer.max_tokens);
}

// The last id is always recomputed: its logits are needed.
void ChatSession::keep_common(Branch& branch, std::span<const int32_t> ids) {
  const int64_t common = branch.log.common(ids.first(ids.size() - 1));
  branch.log.truncate(common);
  if (common >= branch.cached) return;
  branch.cached = runtime_.resume_point(branch.sequence.id(), common);
  runtime_.truncate(branch.sequence.id(), branch.cached);
}

std::span<const float> ChatSession::step(Branch& branch, std::span<const int32_t> ids, Computed how,
                                         bool logits) {
  const StepMode mode = how == Computed::kDecode ? StepMode::kDecode : StepMode::kPrefill;
  const auto count = static_cast<int>(ids.size());
  const StepSequence step[] = {{branch.sequence.id(), count, mode}};
  float* const states = drafts_ ? drafts_->step_states(count) : nullptr;
  const auto result = model_.step(runtime_, ids, step, {.no_logits = !logits, .states = states});
  if (drafts_) drafts_->computed(states, count);
  log(branch, ids, how);
  return result;
}

// The sequence has these tokens now.
void ChatSession::log(Branch& branch, std::span<const int32_t> ids, Computed how) {
  for (const int32_t id : ids) {
    if (branch.cached++ == branch.log.size()) branch.log.append(id, how);
  }
}

// Reads the ids that the sequence lacks layer by layer; none if that cannot be. If it is cancelled,
// whole chunks stay.
std::optional<std::span<const float>> ChatSession::read_by_layers(
    Branch& branch, std::span<const int32_t> ids, const std::function<void(int64_t)>& on_done) {
  const SequenceId sequence = branch.sequence.id();
  const auto first = static_cast<size_t>(branch.cached);
  const int piece = std::min(chunk_, kPieceTokens);
  std::optional<OpenPrompt> open =
      OpenPrompt::open(model_, runtime_, sequence, ids.subspan(first),
                       {.piece = piece, .prompt = 2 * int64_t{piece}, .drafts = drafts_.get()});
  if (!open) return std::nullopt;
  bool whole = false;
  while (!whole && !cancelled()) {
    whole = open->work();
    on_done(branch.cached + static_cast<int64_t>(open->done()));
  }
  const std::span<const float> logits = open->logits();
  open.reset();
  log(branch, ids.first(static_cast<size_t>(runtime_.length(sequence))).subspan(first),
      Computed::kPrefill);
  return whole ? logits : std::span<const float>();
}

// Prefills the ids that the sequence lacks; those known from before are computed as before. Returns
// logits after the last id; none if the question was cancelled.
std::span<const float> ChatSession::read(Branch& branch, std::span<const int32_t> ids,
                                         ChatTurn* turn) {
  const auto start = Clock::now();
  std::span<const float> logits;
  const int64_t kept = branch.cached;
  while (branch.cached < std::ssize(ids)) {
    const Computed how = branch.log.computed(branch.cached, Computed::kPrefill);
    const int64_t run = branch.log.run_end(branch.cached, std::ssize(ids), Computed::kPrefill);
    if (how == Computed::kPrefill) {
      const auto whole =
          read_by_layers(branch, ids.first(static_cast<size_t>(run)), [&](int64_t done) {
            turn->prefilled_tokens = done - kept;
            if (options_.on_prefill) options_.on_prefill(done - kept, std::ssize(ids) - kept);
          });
      if (whole && whole->empty()) return {};
      if (whole) {
        logits = *whole;
        continue;
      }
    }
    const int most =
        how == Computed::kPrefill ? chunk_ : runtime_.info(branch.sequence.id()).max_decoded;
    const auto begin = static_cast<size_t>(branch.cached);
    const auto count = static_cast<size_t>(std::min<int64_t>(most, run - branch.cached));
    const bool last = begin + count == ids.size();
    logits = step(branch, ids.subspan(begin, count), how, last);
    turn->prefilled_tokens = branch.cached - kept;
    if (options_.on_prefill) {
      options_.on_prefill(turn->prefilled_tokens, std::ssize(ids) - kept);
    }
    if (!last && cancelled()) return {};
  }
  turn->prefill_seconds = seconds_since(start);
  return logits;
}

void ChatSession::publish(const Answer& answer, ChatTurn* turn) const {
  std::string shown;
  for (const text::AnswerPiece& piece : answer.pieces()) {
    const bool thought = piece.kind == text::AnswerPiece::Kind::kReasoning;
    std::string& text = thought ? turn->reasoning : turn->text;
    if (thought && text.empty()) shown += "<think>\n";
    if (!thought && text.empty() && !turn->reasoning.empty()) shown += "\n</think>\n\n";
    shown += piece.text;
    text += piece.text;
  }
  if (options_.on_text && !shown.empty()) options_.on_text(shown);
}

void ChatSession::decode(Branch& branch, Answer& answer, const AnswerOptions& options, bool more,
                         ChatTurn* turn) {
  const auto start = Clock::now();
  DraftedSteps steps(model_, runtime_, branch.sequence.id(), answer, options, std::move(drafts_));
  publish(answer, turn);
  model_.shrink(kMinPrefillChunk);
  while (more) {
    if (cancelled()) {
      answer.cancel();
      publish(answer, turn);
      break;
    }
    more = steps.step([&] { publish(answer, turn); });
    turn->decoded_tokens += std::ssize(steps.kept());
    log(branch, steps.kept(), Computed::kDecode);
  }
  turn->decode_seconds = seconds_since(start);
}

ChatTurn ChatSession::ask(const std::string& question) {
  Branch& branch = *branches_[current_];
  std::vector<text::ChatMessage> messages = branch.messages;
  messages.push_back({"user", question});
  const text::ChatPrompt prompt = templates_.render(messages, options_.now);
  const Encoded encoded = encode(prompt, branch);
  const std::vector<int32_t>& ids = encoded.ids;
  if (ids.empty())
    throw UsageError(
        "the chat template renders these messages to an empty prompt; check the template");
  AnswerOptions answer_options = options_.answer;
  answer_options.max_tokens = room_for_answer(ids.size());
  answer_options.reading = std::make_shared<const text::AnswerReading>(text::AnswerReading{
      .format = format_, .functions = {}, .start = text::answer_start(*format_, prompt.text())});
  Answer answer(answer_options, model_.config().eos_ids, &tokenizer_, ids);

  ChatTurn turn;
  turn.prompt_tokens = static_cast<int64_t>(ids.size());
  keep_common(branch, ids);
  const int64_t left = std::ssize(ids) - branch.cached;
  const int64_t context = turn.prompt_tokens + answer_options.max_tokens;
  chunk_ = options_.prefill_chunk == kAutomaticChunk
               ? automatic_chunk(model_, runtime_, context, left)
               : options_.prefill_chunk;
  const int piece = std::min(chunk_, kPieceTokens);
  model_.reserve(static_cast<int>(std::min<int64_t>(piece + OpenPrompt::kFewRows, left)));
  runtime_.reserve(branch.sequence.id(), context, static_cast<int>(std::min<int64_t>(piece, left)));
  drafts_ = open_drafts(answer_options, ids, branch.cached, mtp_ ? &*mtp_ : nullptr);
  if (drafts_) drafts_->reserve(context);
  const auto logits = read(branch, ids, &turn);
  if (logits.empty()) {
    turn.end = AnswerEnd::kCancelled;
    return turn;
  }
  const bool more = answer.take(logits);
  decode(branch, answer, answer_options, more, &turn);
  turn.end = answer.end();
  turn.answer_tokens = static_cast<int64_t>(answer.tokens().size());
  // A template that shows no reasoning gets the text as the model wrote it.
  if (history_.shows_reasoning && !history_.thinking_parts) {
    messages.push_back({"assistant", turn.text, turn.reasoning});
  } else {
    const bool stopped = turn.end == AnswerEnd::kStopString;
    messages.push_back({"assistant", stopped ? turn.text : answer.text()});
  }
  branch.messages = std::move(messages);
  remember(branch, prompt, encoded, answer);
  return turn;
}

bool ChatSession::undo() {
  Branch& branch = *branches_[current_];
  if (branch.before.empty()) return false;
  branch.messages.resize(branch.messages.size() - 2);
  branch.known_text.resize(branch.before.back().text);
  branch.known_ids.resize(branch.before.back().ids);
  branch.before.pop_back();
  return true;
}

size_t ChatSession::fork() {
  const Branch& from = *branches_[current_];
  auto branch = std::make_unique<Branch>(runtime_, runtime_.fork(from.sequence.id(), from.cached));
  branch->messages = from.messages;
  branch->log = from.log;
  branch->cached = from.cached;
  branch->known_text = from.known_text;
  branch->known_ids = from.known_ids;
  branch->before = from.before;
  branches_.push_back(std::move(branch));
  current_ = branches_.size() - 1;
  return current_;
}

void ChatSession::go_to(size_t branch) {
  if (branch >= branches_.size()) {
    throw UsageError(
        fmt::format("branch {} does not exist; allowed: 1 to {}", branch + 1, branches_.size()));
  }
  current_ = branch;
}

}  // namespace fasa
