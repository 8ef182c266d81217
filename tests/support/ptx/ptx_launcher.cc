#include "tests/support/ptx/ptx_launcher.h"

#include <cxxabi.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace fasa {
namespace {

std::string demangled(const char* name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = text != nullptr ? text : name;
  std::free(text);
  return result;
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

PtxLibrary::PtxLibrary(const std::string& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".ptx") continue;
    modules_.push_back(std::make_unique<ptx::Module>(read_file(file.path())));
    for (const std::string& name : modules_.back()->names()) {
      const std::string shown = demangled(name.c_str());  // void run_kernel<Kernel>(Kernel)
      const size_t open = shown.rfind(">(");
      if (open == std::string::npos) continue;
      entries_[shown.substr(open + 2, shown.size() - open - 3)] = {modules_.back().get(), name};
    }
  }
}

PtxLibrary& PtxLibrary::of(int compute_capability) {
  static std::map<int, std::unique_ptr<PtxLibrary>> all;
  const int version = compute_capability < 80 ? 75 : 90;
  auto& library = all[version];
  if (library == nullptr) {
    library =
        std::make_unique<PtxLibrary>(std::string(FASA_PTX_FOLDER) + "/" + std::to_string(version));
  }
  return *library;
}

const ptx::Entry& PtxLibrary::entry(const std::type_info& kernel) {
  const std::string name = demangled(kernel.name());
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw ptx::Error("no PTX of " + name);
  return found->second.first->entry(found->second.second);
}

}  // namespace fasa
