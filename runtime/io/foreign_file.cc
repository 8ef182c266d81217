#include "runtime/io/foreign_file.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace fasa {
namespace {

struct Kind {
  std::string_view begin;
  std::string_view text;
};

constexpr std::string_view kHtml =
    "an HTML page, not the file itself: the download failed; fetch the file again";
constexpr std::string_view kOldGgml =
    "a GGML file of before August 2023; convert the model again, or fetch a GGUF file of it";
constexpr Kind kKinds[] = {
    {"version https://git-lfs",
     "a Git LFS pointer, not the file itself; fetch it with git lfs pull"},
    {"<!doctype", kHtml},
    {"<html", kHtml},
    {"GGUF", "a GGUF file; give its path, not the folder's"},
    {"PK\x03\x04", "a ZIP archive, as PyTorch's files are; convert it to safetensors"},
    {"tjgg", kOldGgml},
    {"fmgg", kOldGgml},
    {"lmgg", kOldGgml},
    {"{", "a JSON text; give the model's folder, not a file in it"},
};

}  // namespace

std::string foreign_file(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  for (const Kind& kind : kKinds) {
    if (text.size() >= kind.begin.size() &&
        std::equal(kind.begin.begin(), kind.begin.end(), text.begin(), same)) {
      return std::string(kind.text);
    }
  }
  return "";
}

}  // namespace fasa
