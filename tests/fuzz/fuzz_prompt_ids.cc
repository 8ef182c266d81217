// Token ids of a prompt: a JSON array, or numbers separated by blanks.
#include "runtime/capture/calibration_data.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/flags/prompt.h"

FASA_FUZZ_TARGET(prompt_ids) {
  static const FuzzFolder folder;
  const std::string path = folder.write("ids", data, size);
  try {
    fasa::read_calibration_texts({path}, nullptr, 100);
  } catch (const fasa::InputError&) {
  }
  constexpr int kVocab = 1000;
  fasa::PromptSource source;
  source.ids_file = path;
  for (const int32_t id : fasa::read_prompt(source, nullptr, kVocab)) {
    if (id < 0 || id >= kVocab) std::abort();
  }
}
