// The conversation of `fasa chat`: questions and commands in, answers out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/generation/chat_session.h"
#include "tools/terminal/terminal.h"

namespace fasa {

// A session and its runtime, created when the first question is known.
class ChatHost {
 public:
  virtual ~ChatHost() = default;
  virtual ChatSession& session(const std::string& first_question) = 0;
  virtual Runtime* runtime() = 0;    // null before the first question
  virtual void begin_answer() = 0;   // before the prompt is read
  virtual void finish_answer() = 0;  // prints what is held back of it
};

class ChatLoop {
 public:
  ChatLoop(ChatHost& host, LineReader& input) : host_(host), input_(input) {}

  // Runs until the input ends or /quit. Throws errors that are not specific to one question or
  // command.
  void run();

 private:
  void ask(const std::string& question);
  // Returns false if the command ends the conversation.
  bool command(std::string_view line);
  void undo();
  void fork(std::string_view argument);
  void save(const std::string& path);
  void read(const std::string& path);
  void print_stats();

  ChatHost& host_;
  LineReader& input_;
  ChatSession* session_ = nullptr;
  std::string pending_;  // text from /read, put before the next question
  ChatTurn last_;
  int64_t turns_ = 0;
};

}  // namespace fasa
