// Results written to files: never half, and a bad path is found before the work.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

// Throws UsageError when no file can be written at `path` (folder missing, not writable, a folder
// itself). Call it before long work; leaves nothing behind.
void check_writable(const std::string& path);

// Writes aside in the same folder, then renames: readers see the old file or the whole new one.
// Throws UsageError; nothing changes then.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace fasa
