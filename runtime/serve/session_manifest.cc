#include "runtime/serve/session_manifest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/params.h"
#include "runtime/base/error.h"

namespace fasa::serve {
namespace {

class Writer {
 public:
  void number(uint64_t value) { bytes(&value, sizeof(value)); }
  void text(std::string_view value) {
    number(value.size());
    bytes(value.data(), value.size());
  }
  void ids(std::span<const int32_t> values) {
    number(values.size());
    bytes(values.data(), values.size_bytes());
  }
  void bytes(const void* data, size_t count) { out_.append(static_cast<const char*>(data), count); }
  std::string take() {
    number(XXH3_64bits(out_.data(), out_.size()));
    return std::move(out_);
  }

 private:
  std::string out_;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& place) : left_(bytes), place_(place) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: {}; the session will be recomputed", place_, what));
  }
  uint64_t number() {
    uint64_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  // A count of items of `size` bytes each; fails if that many bytes are not left.
  size_t count(size_t size) {
    const uint64_t value = number();
    if (value > left_.size() / size) fail("the file is truncated");
    return static_cast<size_t>(value);
  }
  std::string text() { return std::string(take(count(1))); }
  std::vector<int32_t> ids() {
    std::vector<int32_t> values(count(sizeof(int32_t)));
    const std::string_view bytes = take(values.size() * sizeof(int32_t));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    for (const int32_t id : values) {
      if (id < 0) fail("it contains a negative token id");
    }
    return values;
  }
  std::string_view take(size_t count) {
    if (count > left_.size()) fail("the file is truncated");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
  const std::string& place_;
};

TokenLog read_log(Reader& reader) {
  const std::vector<int32_t> ids = reader.ids();
  const std::string_view how = reader.take(ids.size());
  TokenLog log;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (how[i] != 0 && how[i] != 1) reader.fail("it contains an unknown way of computing a token");
    log.append(ids[i], static_cast<Computed>(how[i]));
  }
  return log;
}

void write_pages(Writer& out, const std::vector<StoredPage>& pages) {
  out.number(pages.size());
  for (const StoredPage& page : pages) {
    out.number(page.place);
    out.number(page.checksum);
  }
}

std::vector<StoredPage> read_pages(Reader& reader) {
  std::vector<StoredPage> pages(reader.count(2 * sizeof(uint64_t)));
  for (StoredPage& page : pages) {
    page.place = reader.number();
    page.checksum = reader.number();
  }
  return pages;
}

StoredState read_state(Reader& reader) {
  StoredState state;
  state.point.tokens = static_cast<int64_t>(reader.number());
  const uint64_t open = reader.number();
  if (open >= kLinearBlock) reader.fail("a state of it has more open tokens than a block");
  state.point.open = static_cast<int>(open);
  state.point.bytes = reader.number();
  state.pieces = read_pages(reader);
  return state;
}

// How a state's last token was computed stands in the log.
void check_states(SessionManifest& manifest, const Reader& reader) {
  const TokenLog& log = manifest.conversation.log;
  int64_t before = 0;
  for (StoredState& state : manifest.states) {
    StatePoint& point = state.point;
    if (point.tokens <= before || point.tokens > log.size() || point.open > point.tokens) {
      reader.fail("a state of it is not at one of its tokens, or they are not in order");
    }
    before = point.tokens;
    point.decoded = log.computed(point.tokens - 1) == Computed::kDecode;
    const bool whole = point.bytes > 0 && manifest.page_bytes > 0 &&
                       (point.bytes - 1) / manifest.page_bytes + 1 == state.pieces.size();
    if (!whole) reader.fail("the pieces of a state of it do not have its size");
  }
}

void check_pages(const SessionManifest& manifest, const Reader& reader) {
  const int64_t tokens = manifest.conversation.log.size();
  if (manifest.pages.size() != static_cast<size_t>(pages_of(tokens))) {
    reader.fail("its number of pages does not match its number of tokens");
  }
  if (manifest.first_page > manifest.pages.size())
    reader.fail("its first page lies after its last page");
  std::vector<uint64_t> places;
  const auto add = [&](const StoredPage& page) {
    uint64_t end = 0;
    if (page.place == UINT64_MAX ||
        __builtin_mul_overflow(page.place + 1, manifest.page_bytes, &end) || end > INT64_MAX) {
      reader.fail("the size of its pages exceeds 2^63 bytes");
    }
    places.push_back(page.place);
  };
  for (const StoredPage& page : manifest.pages) add(page);
  for (const StoredState& state : manifest.states) {
    for (const StoredPage& piece : state.pieces) add(piece);
  }
  std::sort(places.begin(), places.end());
  if (std::adjacent_find(places.begin(), places.end()) != places.end()) {
    reader.fail("two of its pages have the same location");
  }
}

}  // namespace

std::string encode_manifest(const SessionManifest& manifest) {
  const Conversation& conversation = manifest.conversation;
  Writer out;
  out.bytes(kManifestVersion.data(), kManifestVersion.size());
  out.number(manifest.written);
  out.text(manifest.fingerprint);
  out.number(manifest.page_bytes);
  out.text(conversation.salt);
  out.text(conversation.title);
  out.text(conversation.text);
  out.ids(conversation.log.ids());
  for (int64_t i = 0; i < conversation.log.size(); ++i) {
    const auto how = static_cast<char>(conversation.log.computed(i));
    out.bytes(&how, 1);
  }
  out.ids(conversation.ahead);
  out.number(conversation.records.size());
  for (const auto& record : conversation.records) {
    out.text(record->id);
    out.text(record->data);
  }
  out.number(static_cast<uint64_t>(conversation.held));
  out.number(manifest.first_page);
  write_pages(out, manifest.pages);
  out.number(manifest.states.size());
  for (const StoredState& state : manifest.states) {
    out.number(static_cast<uint64_t>(state.point.tokens));
    out.number(static_cast<uint64_t>(state.point.open));
    out.number(state.point.bytes);
    write_pages(out, state.pieces);
  }
  return out.take();
}

SessionManifest decode_manifest(std::string_view bytes, const std::string& place) {
  constexpr size_t kNumber = sizeof(uint64_t);
  Reader whole(bytes, place);
  if (!bytes.starts_with(kManifestVersion)) whole.fail("it is not a session of this version");
  if (bytes.size() < kManifestVersion.size() + kNumber) whole.fail("the file is truncated");
  const std::string_view body = bytes.substr(0, bytes.size() - kNumber);
  Reader end(bytes.substr(body.size()), place);
  if (end.number() != XXH3_64bits(body.data(), body.size())) whole.fail("its checksum is wrong");

  Reader reader(body.substr(kManifestVersion.size()), place);
  SessionManifest manifest;
  manifest.written = reader.number();
  manifest.fingerprint = reader.text();
  manifest.page_bytes = reader.number();
  manifest.conversation.salt = reader.text();
  manifest.conversation.title = reader.text();
  manifest.conversation.text = reader.text();
  manifest.conversation.log = read_log(reader);
  manifest.conversation.ahead = reader.ids();
  manifest.conversation.records.resize(reader.count(2 * kNumber));
  for (auto& record : manifest.conversation.records) {
    std::string id = reader.text();
    record = std::make_shared<Record>(std::move(id), reader.text());
  }
  const uint64_t held = reader.number();
  if (held > static_cast<uint64_t>(manifest.conversation.log.size())) {
    reader.fail("the length that it can be cut to exceeds its tokens");
  }
  manifest.conversation.held = static_cast<int64_t>(held);
  manifest.first_page = reader.number();
  manifest.pages = read_pages(reader);
  manifest.states.resize(reader.count(4 * kNumber));
  for (StoredState& state : manifest.states) state = read_state(reader);
  if (!reader.at_end()) reader.fail("data follow the end of the session");
  check_states(manifest, reader);
  check_pages(manifest, reader);
  return manifest;
}

}  // namespace fasa::serve
