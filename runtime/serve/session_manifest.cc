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
  void log(const TokenLog& log) {
    ids(log.ids());
    for (int64_t i = 0; i < log.size(); ++i) out_ += static_cast<char>(log.computed(i));
  }
  void record(const std::shared_ptr<const Record>& record) {
    text(record->id);
    text(record->data);
  }
  template <typename Item, typename Visit>
  void list(const std::vector<Item>& items, size_t /*least*/, const Visit& visit) {
    number(items.size());
    for (const Item& item : items) visit(item);
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
  template <typename Number>
  void number(Number& out) {
    uint64_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    if (!std::in_range<Number>(value)) fail("it contains a number that is too large");
    out = static_cast<Number>(value);
  }
  void text(std::string& out) { out = take(count(1)); }
  void ids(std::vector<int32_t>& values) {
    values.resize(count(sizeof(int32_t)));
    const std::string_view bytes = take(values.size() * sizeof(int32_t));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    for (const int32_t id : values) {
      if (id < 0) fail("it contains a negative token id");
    }
  }
  void log(TokenLog& log) {
    std::vector<int32_t> tokens;
    ids(tokens);
    const std::string_view how = take(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (how[i] != 0 && how[i] != 1) fail("it contains an unknown way of computing a token");
      log.append(tokens[i], static_cast<Computed>(how[i]));
    }
  }
  void record(std::shared_ptr<const Record>& record) {
    std::string id, data;
    text(id), text(data);
    record = std::make_shared<Record>(std::move(id), std::move(data));
  }
  // Items of `least` bytes or more each.
  template <typename Item, typename Visit>
  void list(std::vector<Item>& items, size_t least, const Visit& visit) {
    items.resize(count(least));
    for (Item& item : items) visit(item);
  }
  bool at_end() const { return left_.empty(); }

 private:
  // A count of items of `size` bytes each; fails if that many bytes are not left.
  size_t count(size_t size) {
    uint64_t value = 0;
    number(value);
    if (value > left_.size() / size) fail("the file is truncated");
    return static_cast<size_t>(value);
  }
  std::string_view take(size_t count) {
    if (count > left_.size()) fail("the file is truncated");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
  const std::string& place_;
};

// The file's fields in their order. `io`: a Writer, or a Reader of a manifest that is not const.
template <typename Io, typename Manifest>
void transfer(Io& io, Manifest& manifest) {
  constexpr size_t kNumber = sizeof(uint64_t);
  const auto pages = [&io](auto& list) {
    io.list(list, 2 * kNumber, [&io](auto& page) {
      io.number(page.place);
      io.number(page.checksum);
    });
  };
  auto& conversation = manifest.conversation;
  io.number(manifest.written);
  io.text(manifest.fingerprint);
  io.number(manifest.page_bytes);
  io.text(conversation.salt);
  io.text(conversation.title);
  io.text(conversation.text);
  io.log(conversation.log);
  io.ids(conversation.ahead);
  io.list(conversation.records, 2 * kNumber, [&io](auto& record) { io.record(record); });
  io.number(conversation.held);
  io.number(manifest.first_page);
  pages(manifest.pages);
  io.list(manifest.states, 4 * kNumber, [&](auto& state) {
    io.number(state.point.tokens);
    io.number(state.point.open);
    io.number(state.point.bytes);
    pages(state.pieces);
  });
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
    if (point.open >= kLinearBlock) reader.fail("a state of it has more open tokens than a block");
    before = point.tokens;
    point.decoded = log.computed(point.tokens - 1) == Computed::kDecode;
    const bool whole = point.bytes > 0 && manifest.page_bytes > 0 &&
                       (point.bytes - 1) / manifest.page_bytes + 1 == state.pieces.size();
    if (!whole) reader.fail("the pieces of a state of it do not have its size");
  }
}

void check_pages(const SessionManifest& manifest, const Reader& reader) {
  const int64_t tokens = manifest.conversation.log.size();
  if (manifest.conversation.held > tokens) {
    reader.fail("the length that it can be cut to exceeds its tokens");
  }
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
  Writer out;
  out.bytes(kManifestVersion.data(), kManifestVersion.size());
  transfer(out, manifest);
  return out.take();
}

SessionManifest decode_manifest(std::string_view bytes, const std::string& place) {
  constexpr size_t kNumber = sizeof(uint64_t);
  Reader whole(bytes, place);
  if (!bytes.starts_with(kManifestVersion)) whole.fail("it is not a session of this version");
  if (bytes.size() < kManifestVersion.size() + kNumber) whole.fail("the file is truncated");
  const std::string_view body = bytes.substr(0, bytes.size() - kNumber);
  uint64_t checksum = 0;
  Reader(bytes.substr(body.size()), place).number(checksum);
  if (checksum != XXH3_64bits(body.data(), body.size())) whole.fail("its checksum is wrong");

  Reader reader(body.substr(kManifestVersion.size()), place);
  SessionManifest manifest;
  transfer(reader, manifest);
  if (!reader.at_end()) reader.fail("data follow the end of the session");
  check_states(manifest, reader);
  check_pages(manifest, reader);
  return manifest;
}

}  // namespace fasa::serve
