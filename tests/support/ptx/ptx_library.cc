#include "tests/support/ptx/ptx_library.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

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

PtxLibrary::PtxLibrary(const std::string& folder) : folder_(folder) {
  if (!std::filesystem::exists(folder)) {
    throw ptx::Error("no folder " + folder + ": the build's targets ptx_files_75 ... make it");
  }
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

PtxLibrary::~PtxLibrary() {
  const char* const folder = std::getenv("FASA_PTX_COVERAGE");
  if (folder == nullptr) return;
  const std::filesystem::path own = folder_;
  std::ofstream out(fmt::format("{}/{}-{}", folder, own.filename().string(), getpid()));
  for (const auto& module : modules_) {
    for (const auto& [name, entry] : module->decoded())
      out << name << ' ' << entry.executed << '\n';
  }
}

PtxLibrary& PtxLibrary::of(int compute_capability, int newest) {
  static std::mutex opening;
  static std::map<int, std::unique_ptr<PtxLibrary>> all;
  const std::lock_guard lock(opening);
  const int version = compute_capability < 80 ? 75 : newest;
  auto& library = all[version];
  if (library == nullptr) {
    const char* const other = std::getenv("FASA_PTX_FOLDER");
    const std::string folder = other != nullptr ? other : FASA_PTX_FOLDER;
    library = std::make_unique<PtxLibrary>(folder + "/" + std::to_string(version));
  }
  return *library;
}

const ptx::Entry& PtxLibrary::entry(const std::type_info& kernel) {
  const std::lock_guard lock(decoding_);
  const std::string name = demangled(kernel.name());
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw ptx::Error("no PTX of " + name + " in " + folder_);
  return found->second.first->entry(found->second.second);
}

}  // namespace fasa
