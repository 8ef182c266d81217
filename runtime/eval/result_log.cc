#include "runtime/eval/result_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

constexpr int kSchema = 1;

[[noreturn]] void cannot_write(const std::string& path, int error) {
  throw UsageError(fmt::format("cannot write {}: {}; give another folder (--results DIR)", path,
                               std::strerror(error)));
}

[[noreturn]] void spoilt(const std::string& path, size_t line, std::string_view why) {
  throw InputError(
      fmt::format("{}:{}: {}; remove the line, or start again (--fresh)", path, line, why));
}

Json parse_line(std::string_view text, const std::string& path, size_t line) {
  const std::string place = fmt::format("{}:{}", path, line);
  try {
    Json json = parse_json(text, place);
    if (!json.is_object()) throw InputError(fmt::format("{}: not a JSON object", place));
    return json;
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}; remove the line, or start again (--fresh)", error.what()));
  }
}

void take_line(const Json& json, const std::string& path, size_t line, ResultFile& file) {
  if (line == 1) {
    if (json.value("fasa_eval", Json()) != kSchema || !json.contains("setup")) {
      throw InputError(
          fmt::format("{}:1: not a results file; give a file that fasa eval wrote", path));
    }
    file.setup = json.at("setup");
    return;
  }
  if (!json.contains("id") || !json.at("id").is_string()) {
    spoilt(path, line, "the example has no \"id\"");
  }
  file.records.push_back(json);
}

ResultFile parse_results(std::string_view text, const std::string& path) {
  ResultFile file;
  size_t line = 1;
  for (size_t end; (end = text.find('\n', file.whole_bytes)) != std::string_view::npos; ++line) {
    const std::string_view one = text.substr(file.whole_bytes, end - file.whole_bytes);
    take_line(parse_line(one, path, line), path, line, file);
    file.whole_bytes = end + 1;
  }
  return file;
}

}  // namespace

ResultFile read_results(const std::string& path) {
  ResultFile file = parse_results(read_file(path, kDataFile), path);
  if (file.whole_bytes == 0) {
    throw InputError(
        fmt::format("{}: the file has no complete line; give a file that fasa eval wrote", path));
  }
  return file;
}

ResultLog::ResultLog(std::string path, const Json& setup, Begin begin) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) cannot_write(path_, errno);
  try {
    lock();
    ResultFile old;
    if (begin == Begin::kResume) old = parse_results(read_file(path_, kDataFile), path_);
    if (::ftruncate(file_, static_cast<off_t>(old.whole_bytes)) != 0) cannot_write(path_, errno);
    bytes_ = old.whole_bytes;
    if (bytes_ == 0) {
      append(Json{{"fasa_eval", kSchema}, {"setup", setup}}.dump());
    } else if (old.setup != setup) {
      throw InputError(
          fmt::format("{}:1: these results come from a different setup; give another folder "
                      "(--results DIR), or start again (--fresh)",
                      path_));
    }
    for (Json& record : old.records) {
      const auto id = record.at("id").get<std::string>();
      records_[id] = std::move(record);
    }
  } catch (...) {
    ::close(file_);
    throw;
  }
}

ResultLog::~ResultLog() { ::close(file_); }

void ResultLog::lock() {
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) cannot_write(path_, errno);
  throw UsageError(
      fmt::format("{}: another evaluation is writing to this file; wait until it ends, or give "
                  "another folder (--results DIR)",
                  path_));
}

const Json* ResultLog::find(const std::string& id) const {
  const auto found = records_.find(id);
  return found == records_.end() ? nullptr : &found->second;
}

void ResultLog::add(const Json& record) {
  // A model's answer may contain bytes that are not UTF-8.
  append(record.dump(-1, ' ', false, Json::error_handler_t::replace));
  records_[record.at("id").get<std::string>()] = record;
}

void ResultLog::append(const std::string& line) {
  const std::string whole = line + "\n";
  const ssize_t written = ::pwrite(file_, whole.data(), whole.size(), static_cast<off_t>(bytes_));
  if (written != static_cast<ssize_t>(whole.size()) || ::fdatasync(file_) != 0) {
    const int error = written < 0 ? errno : ENOSPC;
    static_cast<void>(::ftruncate(file_, static_cast<off_t>(bytes_)));
    cannot_write(path_, error);
  }
  bytes_ += whole.size();
}

}  // namespace fasa
