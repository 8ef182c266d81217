#include "tests/simulation/library_code.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace fasa::testing {
namespace {

constexpr std::array kLibraries = {"libtbb",  "libtomlplusplus", "libhwloc", "libdnnl",
                                   "libgomp", "libnuma",         "libonig"};

using Ranges = std::vector<std::pair<uintptr_t, uintptr_t>>;

int add_object(dl_phdr_info* info, size_t, void* ranges) {
  const std::string_view name = info->dlpi_name;
  const bool ours = std::none_of(kLibraries.begin(), kLibraries.end(), [&](const char* library) {
    return name.find(library) != std::string_view::npos;
  });
  if (ours) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    static_cast<Ranges*>(ranges)->emplace_back(begin, begin + part.p_memsz);
  }
  return 0;
}

int first_base(dl_phdr_info* info, size_t, void* base) {
  *static_cast<uintptr_t*>(base) = info->dlpi_addr;  // the program comes first
  return 1;
}

template <typename T>
const T* at(const std::string& bytes, uint64_t offset) {
  return reinterpret_cast<const T*>(bytes.data() + offset);
}

}  // namespace

LibraryCode::LibraryCode() {
  add_shared_objects();
  uintptr_t base = 0;
  dl_iterate_phdr(first_base, &base);
  add_symbols(base);
  std::sort(ranges_.begin(), ranges_.end());
}

void LibraryCode::add_shared_objects() { dl_iterate_phdr(add_object, &ranges_); }

void LibraryCode::add_symbols(uintptr_t base) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string program((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
  if (program.size() < sizeof(ElfW(Ehdr))) return;
  const auto* header = at<ElfW(Ehdr)>(program, 0);
  const auto* sections = at<ElfW(Shdr)>(program, header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* names = program.data() + sections[sections[i].sh_link].sh_offset;
    const auto* symbols = at<ElfW(Sym)>(program, sections[i].sh_offset);
    for (uint64_t s = 0; s < sections[i].sh_size / sizeof(ElfW(Sym)); ++s) {
      const ElfW(Sym)& symbol = symbols[s];
      if ((symbol.st_info & 15) != STT_FUNC || symbol.st_size == 0) continue;
      if (std::strstr(names + symbol.st_name, "nlohmann") == nullptr) continue;
      ranges_.emplace_back(base + symbol.st_value, base + symbol.st_value + symbol.st_size);
    }
  }
}

bool LibraryCode::has(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), at,
                       [](uintptr_t value, const auto& range) { return value < range.first; });
  return after != ranges_.begin() && at < std::prev(after)->second;
}

}  // namespace fasa::testing
