// The kernels of a file of PTX.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/ptx/decoder.h"

namespace fasa::ptx {

class Module {
 public:
  explicit Module(std::string text);
  Module(const Module&) = delete;  // entries hold addresses of its constants
  Module& operator=(const Module&) = delete;

  std::vector<std::string> names() const;
  const std::map<std::string, Entry>& decoded() const { return entries_; }
  // Decodes at the first call. Throws Error for PTX that the executor does not know.
  const Entry& entry(const std::string& name);

 private:
  struct Location {
    size_t begin, end;
    int line;
  };
  void find_entries();
  void read_globals();

  const std::string text_;
  std::map<std::string, Location> locations_;
  std::map<std::string, Entry> entries_;
  Globals globals_;
};

}  // namespace fasa::ptx
