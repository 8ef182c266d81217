// Writes result files atomically; a bad path is found before the work.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

// Throws UsageError if no file can be written at `path` (folder missing or not writable, or path is
// a folder). Call it before long work; it leaves no file.
void check_writable(const std::string& path);

// Writes a temporary file in the same folder, then renames it: readers see the old or the new file.
// Throws UsageError; the old file then remains.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace fasa
