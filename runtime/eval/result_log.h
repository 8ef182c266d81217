// Results of one evaluation, a JSON line an example, kept as they come: an interrupted evaluation
// goes on where it was.
//
// The first line is {"fasa_eval": 1, "setup": {...}}, all that the results depend on; every other
// one is an object with a member "id" that no other line has.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fasa {

struct ResultFile {
  nlohmann::json setup;
  std::vector<nlohmann::json> records;
  size_t whole_bytes = 0;  // up to the end of the last whole line
};

// A last line that an interruption cut off is left out. Throws InputError with file and line.
ResultFile read_results(const std::string& path);

class ResultLog {
 public:
  enum class Begin { kResume, kAfresh };
  // Opens or makes the file; takes up what it holds unless `begin` says to start afresh. Throws
  // UsageError (no such folder, another process writes to it), InputError (no such file of results,
  // or one of another setup).
  ResultLog(std::string path, const nlohmann::json& setup, Begin begin);
  ~ResultLog();
  ResultLog(const ResultLog&) = delete;  // holds the file's lock
  ResultLog& operator=(const ResultLog&) = delete;

  const std::string& path() const { return path_; }
  // nullptr: not there yet. Valid until the next add().
  const nlohmann::json* find(const std::string& id) const;
  // `record` has its id as "id". On disk when this returns. Throws UsageError when it can't be
  // written; the file then ends in whole lines.
  void add(const nlohmann::json& record);

 private:
  void lock();
  void append(const std::string& line);

  std::string path_;
  int file_ = -1;
  size_t bytes_ = 0;
  std::map<std::string, nlohmann::json> records_;
};

}  // namespace fasa
