#include "runtime/io/shipped_files.h"

#include <dlfcn.h>

namespace fasa {
namespace {

namespace fs = std::filesystem;

// The shared library that holds this function, such as the Python module; else the program.
fs::path own_file() {
  std::error_code error;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&shipped_file), &info) != 0) {
    const fs::path file = info.dli_fname;
    if (file.extension() == ".so") return fs::canonical(file, error);
  }
  return fs::read_symlink("/proc/self/exe", error);
}

}  // namespace

std::optional<fs::path> shipped_file(std::string_view name) {
  const fs::path self = own_file();
  std::error_code error;
  for (fs::path up = self.parent_path(); !up.empty(); up = up.parent_path()) {
    for (const fs::path& models : {up / "models", up / "share" / "fasa" / "models"}) {
      if (fs::exists(models / name, error)) return models / name;
    }
    if (up == up.parent_path()) break;
  }
  return std::nullopt;
}

}  // namespace fasa
