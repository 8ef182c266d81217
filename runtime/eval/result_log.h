// The results of one evaluation, one JSON line per example, written as they are computed: an
// interrupted evaluation continues from the file.
//
// The first line is {"fasa_eval": 1, "setup": {...}}; the setup holds everything that the results
// depend on. Every other line is an object with a unique member "id".
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

// An incomplete last line, left by an interruption, is ignored. Throws InputError with file and
// line.
ResultFile read_results(const std::string& path);

class ResultLog {
 public:
  enum class Begin { kResume, kAfresh };
  // Opens or creates the file and reads its records, or empties it if `begin` requests that. Throws
  // UsageError (no such folder, another process writes to it) and InputError (not a file of
  // results, or one of another setup).
  ResultLog(std::string path, const nlohmann::json& setup, Begin begin);
  ~ResultLog();
  ResultLog(const ResultLog&) = delete;  // holds the file's lock
  ResultLog& operator=(const ResultLog&) = delete;

  const std::string& path() const { return path_; }
  // nullptr: no such record. Valid until the next add().
  const nlohmann::json* find(const std::string& id) const;
  // `record` has its id as "id". The record is on disk when this returns. Throws UsageError if it
  // cannot be written; the file then ends with a complete line.
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
