#include "tools/terminal/line_editor.h"

#include <histedit.h>

#include <cerrno>
#include <clocale>
#include <cstdio>

namespace fasa {

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
};

namespace {

constexpr int kLines = 1000;

char* prompt_of(EditLine* editor) {
  std::string* prompt = nullptr;
  el_get(editor, EL_CLIENTDATA, &prompt);
  return prompt->data();
}

}  // namespace

LineEditor::LineEditor() : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "");  // characters of several bytes
  HistEvent event;
  state_->history = history_init();
  history(state_->history, &event, H_SETSIZE, kLines);
  history(state_->history, &event, H_SETUNIQUE, 1);
  state_->editor = el_init("fasa", stdin, stdout, stderr);
  el_set(state_->editor, EL_CLIENTDATA, &state_->prompt);
  el_set(state_->editor, EL_PROMPT, prompt_of);
  el_set(state_->editor, EL_EDITOR, "emacs");
  el_set(state_->editor, EL_HIST, history, state_->history);
}

LineEditor::~LineEditor() {
  el_end(state_->editor);
  history_end(state_->history);
}

std::optional<std::string> LineEditor::next(std::string_view prompt, bool* interrupted) {
  state_->prompt = prompt;
  *interrupted = false;
  int count = 0;
  errno = 0;
  const char* const text = el_gets(state_->editor, &count);
  if (text == nullptr || count <= 0) {
    *interrupted = count < 0 && errno == EINTR;
    if (*interrupted) return "";
    return std::nullopt;
  }
  std::string line(text, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) history(state_->history, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace fasa
