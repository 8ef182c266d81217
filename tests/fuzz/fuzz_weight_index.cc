// model.safetensors.index.json beside two valid shards.
#include "runtime/llm/weights/safetensors.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(weight_index) {
  static const FuzzFolder folder;
  static const bool made = [] {
    const std::string from = std::string(FASA_SOURCE_DIR) + "/tests/golden/qwen2-sharded/";
    for (const char* name :
         {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
      std::filesystem::copy_file(from + name, folder.file(name));
    }
    return true;
  }();
  if (!made) return;
  folder.write("model.safetensors.index.json", data, size);
  const fasa::WeightFiles files(folder.path());
  for (const std::string& name : files.names()) {
    if (!files.has(name)) std::abort();
  }
}
