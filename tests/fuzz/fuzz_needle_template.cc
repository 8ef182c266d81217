// needle.json from a model's folder.
#include "runtime/eval/tasks/needle_template.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(needle_template) {
  const auto needle = fasa::NeedleTemplate::parse(text_of(data, size), "fuzz.json");
  // An accepted template can generate facts.
  std::mt19937_64 random(1);
  for (const fasa::NeedleFact& fact : needle.draw(1, random)) {
    if (!needle.is_right(fact.answer + needle.ends_with(), fact.answer)) std::abort();
  }
}
