// Reads whole input files. Paths are untrusted: endless or unreadable files are rejected before a
// byte is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fasa {

struct FileRule {
  std::string_view what = "file";  // in messages
  // Pipes made by a shell, `<(command)` and /dev/stdin, are allowed: they have a writer, so they
  // end.
  enum class Pipes : uint8_t { kRefused, kOfShell };
  uint64_t max_bytes = uint64_t{64} << 20;  // configs, maps, indices, templates
  Pipes pipes = Pipes::kRefused;
};

// Prompts and texts. 1M tokens are about 5 MB of English.
inline constexpr FileRule kPromptFile = {
    .what = "prompt file", .max_bytes = uint64_t{256} << 20, .pipes = FileRule::Pipes::kOfShell};
// Data sets, results, recorded selections: files read line by line or step by step, without a
// limit.
inline constexpr FileRule kDataFile = {
    .what = "file", .max_bytes = uint64_t{1} << 30, .pipes = FileRule::Pipes::kRefused};

// Reads a regular file (or a pipe, if the rule allows it). Throws InputError for a path that cannot
// be opened or read, for folders, named pipes, sockets and devices, which may never end, and for
// more bytes than the rule allows.
std::string read_file(const std::string& path, const FileRule& rule = {});

}  // namespace fasa
