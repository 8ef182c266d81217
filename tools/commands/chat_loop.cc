#include "tools/commands/chat_loop.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/base/utf8.h"
#include "runtime/io/input_file.h"
#include "runtime/io/output_file.h"

namespace fasa {
namespace {

constexpr std::string_view kHelp =
    "/fork        start a branch here; /fork N continues branch N\n"
    "/undo        remove the last question and its answer\n"
    "/read FILE   put the file's text before the next question\n"
    "/save FILE   write the conversation as JSON, in the form that fasa template reads\n"
    "/stats       show tokens, rates, bytes on each tier, hit rate\n"
    "/quit        leave (as does the end of the input)\n"
    "Ctrl-C stops an answer. A line that ends with a backslash continues in the next.\n"
    "Begin a question that starts with / with //.\n";

// Errors that leave the conversation unchanged.
bool is_mild(const Error& error) { return error.kind() != ErrorKind::kDevice; }

void print_error(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "fasa: error: {}\n", error.what());
}

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

void ChatLoop::run() {
  while (auto line = input_.next("> ")) {
    Interrupts::forget();
    try {
      if (line->starts_with('/') && !line->starts_with("//")) {
        if (!command(*line)) return;
      } else if (line->find_first_not_of(" \t") != std::string::npos) {
        ask(line->starts_with("//") ? line->substr(1) : *line);
      }
    } catch (const Error& error) {
      if (!is_mild(error)) throw;
      print_error(error);
    }
  }
}

void ChatLoop::ask(const std::string& question) {
  const std::string whole = pending_.empty() ? question : pending_ + "\n\n" + question;
  if (session_ == nullptr) session_ = &host_.session(whole);
  host_.runtime()->reset_metrics();
  host_.begin_answer();
  ChatTurn turn;
  try {
    turn = session_->ask(whole);
  } catch (...) {
    host_.finish_answer();
    throw;
  }
  host_.finish_answer();
  fmt::print("\n");
  std::fflush(stdout);
  if (turn.end == AnswerEnd::kCancelled && turn.answer_tokens == 0) {
    fmt::print(stderr, "(stopped before the answer began)\n");
    return;
  }
  if (turn.end == AnswerEnd::kCancelled) fmt::print(stderr, "(stopped)\n");
  if (turn.end == AnswerEnd::kMaxTokens)
    fmt::print(stderr, "(stopped after {} tokens, the limit)\n", turn.answer_tokens);
  pending_.clear();
  last_ = turn;
  ++turns_;
}

bool ChatLoop::command(std::string_view line) {
  const size_t blank = std::min(line.find(' '), line.size());
  const std::string_view name = line.substr(0, blank);
  const size_t begin = std::min(line.find_first_not_of(' ', blank), line.size());
  const std::string argument(line.substr(begin));
  if (name == "/quit" || name == "/exit") return false;
  if (name == "/help") {
    fmt::print("{}", kHelp);
  } else if (name == "/undo") {
    undo();
  } else if (name == "/fork") {
    fork(argument);
  } else if (name == "/save") {
    save(argument);
  } else if (name == "/read") {
    read(argument);
  } else if (name == "/stats") {
    print_stats();
  } else {
    throw UsageError(fmt::format("{} is not a command; /help lists the commands", name));
  }
  return true;
}

void ChatLoop::undo() {
  if (session_ == nullptr || !session_->undo()) throw UsageError("there is no question to remove");
  fmt::print(stderr, "(removed the last question and its answer)\n");
}

void ChatLoop::fork(std::string_view argument) {
  if (session_ == nullptr) throw UsageError("the conversation is empty; ask a question first");
  const size_t before = session_->branch();
  if (argument.empty()) {
    session_->fork();
    fmt::print(stderr, "(branch {} of {}; /fork {} returns to the previous one)\n",
               session_->branch() + 1, session_->branches(), before + 1);
    return;
  }
  size_t branch = 0;
  const auto parsed = std::from_chars(argument.data(), argument.data() + argument.size(), branch);
  if (parsed.ec != std::errc() || parsed.ptr != argument.data() + argument.size() || branch == 0) {
    throw UsageError(
        fmt::format("/fork {}: allowed: no argument, or the number of a branch", argument));
  }
  session_->go_to(branch - 1);
  fmt::print(stderr, "(branch {} of {})\n", branch, session_->branches());
}

void ChatLoop::save(const std::string& path) {
  if (path.empty()) throw UsageError("/save needs a file name: /save FILE");
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (session_ != nullptr) {
    for (const text::ChatMessage& message : session_->messages()) {
      messages.push_back({{"role", message.role}, {"content", valid_utf8(message.content)}});
    }
  }
  const nlohmann::ordered_json conversation = {{"messages", std::move(messages)}};
  write_file_atomically(path, conversation.dump(2) + "\n");
  fmt::print(stderr, "(saved to {})\n", path);
}

void ChatLoop::read(const std::string& path) {
  const std::string text = read_file(path, kPromptFile);
  pending_ += (pending_.empty() ? "" : "\n\n") + text;
  fmt::print(stderr, "(the next question begins with these {} bytes)\n", text.size());
}

void ChatLoop::print_stats() {
  if (session_ == nullptr) throw UsageError("the conversation is empty; ask a question first");
  const KvMemory memory = host_.runtime()->memory();
  const FetchMetrics fetch = host_.runtime()->metrics();
  fmt::print("turns                   {} in branch {} of {}\n", turns_, session_->branch() + 1,
             session_->branches());
  fmt::print("tokens in the cache     {}\n", session_->cached_tokens());
  fmt::print("last prompt             {} tokens, {} of them new, in {:.3f} s ({:.1f} a second)\n",
             last_.prompt_tokens, last_.prefilled_tokens, last_.prefill_seconds,
             per_second(last_.prefilled_tokens, last_.prefill_seconds));
  fmt::print("last answer             {} tokens in {:.3f} s ({:.1f} a second)\n",
             last_.answer_tokens, last_.decode_seconds,
             per_second(last_.decoded_tokens, last_.decode_seconds));
  fmt::print("KV bytes on the device  {}{}\n", format_bytes(memory.device_needed()),
             memory.device_extra == 0
                 ? ""
                 : fmt::format(", and {} of extra hot rows while memory is free",
                               format_bytes(memory.device_extra)));
  fmt::print("KV bytes on the host    {}\n", format_bytes(memory.host_rows));
  if (memory.device_states > 0) {
    fmt::print(
        "states                  {} of layers with linear attention; {} of snapshots on the "
        "host\n",
        format_bytes(memory.device_states), format_bytes(memory.host_states));
  }
  fmt::print("hit rate                {:.1f} %\n", fetch.hit_rate() * 100);
}

}  // namespace fasa
