#include "runtime/serve/served_choices.h"

#include <algorithm>

namespace fasa::serve {

void ServedChoices::step_back(ActiveChoice& active) {
  const auto found = std::find_if(active_.begin(), active_.end(),
                                  [&](const auto& one) { return one.get() == &active; });
  waiting_.splice(waiting_.begin(), active_, found);
}

void ServedChoices::end_finished() {
  const size_t before = active_.size();
  for (List* list : {&active_, &waiting_}) {
    for (auto one = list->begin(); one != list->end();) {
      const auto next = std::next(one);
      if ((*one)->finished) ended_.splice(ended_.end(), *list, one);
      one = next;
    }
  }
  if (active_.size() < before) memory_pressure_ = false;
}

void ServedChoices::tell_ended() {
  for (const auto& one : ended_) {
    RequestObserver& observer = *one->request.observer;
    if (one->failure) {
      observer.on_error(one->failure->kind, one->failure->message);
    } else {
      observer.on_end(one->choice, *one->answer);
    }
  }
  ended_.clear();
}

void ServedChoices::finish(ActiveChoice& active) {
  if (active.finished) return;
  active.finished = true;
  switch (active.answer->end()) {
    case AnswerEnd::kMaxTokens:
      ++stats_.finished_length;
      break;
    case AnswerEnd::kCancelled:
      ++stats_.finished_cancelled;
      break;
    default:
      ++stats_.finished_stop;
  }
}

void ServedChoices::cancel(ActiveChoice& active) {
  if (active.finished) return;
  active.answer->cancel();
  finish(active);
}

void ServedChoices::cancel(uint64_t id) {
  for_each([&](ActiveChoice& one) {
    if (one.id == id) cancel(one);
  });
}

void ServedChoices::cancel_all() {
  for_each([&](ActiveChoice& one) { cancel(one); });
}

void ServedChoices::fail(ActiveChoice& active, ErrorKind kind, const std::string& message) {
  if (active.finished) return;
  active.finished = true;
  active.failure = ActiveChoice::Failure{kind, message};
  ++stats_.finished_error;
}

void ServedChoices::fail_all(ErrorKind kind, const std::string& message) {
  for_each([&](ActiveChoice& one) { fail(one, kind, message); });
}

}  // namespace fasa::serve
