// A session's manifest without its first line and its checksum: the checksum would reject nearly
// every input.
#include <xxhash.h>

#include "runtime/serve/session_manifest.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(session) {
  std::string bytes(fasa::serve::kManifestVersion);
  bytes.append(reinterpret_cast<const char*>(data), size);
  const uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  const auto manifest = fasa::serve::decode_manifest(bytes, "session");
  if (fasa::serve::encode_manifest(manifest) != bytes) std::abort();
}
