// Input files, read whole. A path may name anything: what has no end, no reader or no sense as a
// file is refused before a byte of it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fasa {

struct FileRule {
  std::string_view what = "file";  // in messages
  // Pipes that a shell makes, `<(command)` and /dev/stdin: they have had a writer, so they end.
  enum class Pipes : uint8_t { kRefused, kOfShell };
  uint64_t max_bytes = uint64_t{64} << 20;  // configs, maps, indices, templates
  Pipes pipes = Pipes::kRefused;
};

// A prompt or a text. 1M tokens are some 5 MB of English.
inline constexpr FileRule kPromptFile = {
    .what = "prompt file", .max_bytes = uint64_t{256} << 20, .pipes = FileRule::Pipes::kOfShell};
// Data sets, results, recorded selections: a line or a step at a time, of any number.
inline constexpr FileRule kDataFile = {
    .what = "file", .max_bytes = uint64_t{1} << 30, .pipes = FileRule::Pipes::kRefused};

// The bytes of a regular file (or a pipe, where the rule allows them). Throws InputError for
// whatever cannot be opened or read, for folders, named pipes, sockets and devices, which might
// never end, and for more bytes than the rule allows.
std::string read_file(const std::string& path, const FileRule& rule = {});

}  // namespace fasa
