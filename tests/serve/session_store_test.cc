// Sessions on disk survive any end of the process, and damaged ones are rejected.
#include "runtime/serve/session_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/output_file.h"
#include "tests/llm/temp_model.h"

namespace fasa::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr PageBytes kPage{.rows = 9000, .slices = 40};  // three pieces, the last one shorter
constexpr PageFormat kFormat{kPage};
constexpr int64_t kToken = kPageTokens;  // tokens per page

class SessionStoreTest : public ::testing::Test {
 protected:
  StoreOptions options(const std::string& fingerprint = "model a") const {
    return {.dir = dir(), .fingerprint = fingerprint, .page = kPage};
  }
  std::string dir() const { return folder_.path() + "/sessions"; }
  std::string file(const char* name) const { return dir() + "/" + name; }

 private:
  llm_test::TempDir folder_;
};

std::vector<std::byte> bytes_of(int64_t page, int64_t tokens, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(static_cast<size_t>(page * 31 + tokens) + i * 13 + i / 256);
  }
  return bytes;
}

Conversation conversation_of(int64_t tokens) {
  Conversation conversation{.salt = "a",
                            .text = "what was said",
                            .ahead = {5, 6},
                            .records = {std::make_shared<Record>("first", "data"),
                                        std::make_shared<Record>("second", "")}};
  for (int64_t i = 0; i < tokens; ++i) {
    conversation.log.append(static_cast<int32_t>(3 * i),
                            i % 5 == 4 ? Computed::kDecode : Computed::kPrefill);
  }
  return conversation;
}

constexpr int64_t kStates = 2;  // that a session keeps

// A state of a few pieces, the last one shorter.
StatePoint point_of(int64_t tokens) {
  return {.tokens = tokens,
          .open = static_cast<int>(std::min<int64_t>(tokens, 7)),
          .decoded = (tokens - 1) % 5 == 4,
          .bytes = 2 * kFormat.page_bytes() + static_cast<uint64_t>(tokens)};
}

std::vector<std::byte> state_of(int64_t tokens) {
  return bytes_of(1000, tokens, point_of(tokens).bytes);
}

void write_states(SessionStore& store, uint64_t session, int64_t tokens) {
  std::vector<StatePoint> points = store.states(session);
  points.push_back(point_of(tokens));
  if (std::ssize(points) > kStates) points.erase(points.begin());
  while (const StoredState* const state = store.want_states(session, points)) {
    const std::vector<std::byte> bytes = state_of(state->point.tokens);
    const size_t done = state->pieces.size() * store.piece_bytes();
    const size_t more = std::min(store.piece_bytes(), bytes.size() - done);
    store.write_state(session, state->point.tokens, std::span(bytes).subspan(done, more));
  }
}

void grow(SessionStore& store, uint64_t session, int64_t tokens) {
  for (int64_t at = store.written(session); at < tokens; at = store.written(session)) {
    const int64_t page = at / kToken, has = std::min(kToken, tokens - page * kToken);
    store.write(session, static_cast<int>(has), bytes_of(page, has, kPage.rows),
                bytes_of(page, has, has == kToken ? kPage.slices : 0));
  }
  write_states(store, session, tokens);
  while (!store.flush(session, 0.001)) continue;
  store.commit(session, conversation_of(tokens), 0);
}

std::vector<std::byte> read_rows(SuspendedPages& pages, int64_t page) {
  std::vector<std::byte> rows(kPage.rows), header(kFormat.header_bytes());
  pages.read_page_headers(page, header);
  pages.read_rows(page, rows);
  return rows;
}

std::vector<std::byte> read_state(const SessionStore& store, uint64_t session, int64_t tokens) {
  ReadPool pool;
  const auto pages = store.open(session, 0, tokens, pool);
  std::vector<std::byte> bytes(pages->state().bytes);
  const size_t first = store.piece_bytes();  // in two reads
  pages->read_state(0, std::span(bytes).first(first));
  pages->read_state(1, std::span(bytes).subspan(first));
  return bytes;
}

// Expects in every page and state of a session the bytes that grow() wrote.
void expect_pages(const SessionStore& store, uint64_t session) {
  ReadPool pool;
  const int64_t tokens = store.committed(session);
  const std::vector<StatePoint> states = store.states(session);
  ASSERT_FALSE(states.empty());
  EXPECT_EQ(states.back(), point_of(tokens));
  for (const StatePoint& point : states) {
    ASSERT_EQ(read_state(store, session, point.tokens), state_of(point.tokens));
  }
  const auto pages = store.open(session, pages_of(tokens), 0, pool);
  for (int64_t page = 0; page < pages_of(tokens); ++page) {
    const int64_t has = std::min(kToken, tokens - page * kToken);
    ASSERT_EQ(read_rows(*pages, page), bytes_of(page, has, kPage.rows)) << page;
    std::vector<std::byte> header(kFormat.header_bytes());
    pages->read_page_headers(page, header);
    header.resize(has == kToken ? kPage.slices : 0);
    ASSERT_EQ(header, bytes_of(page, has, header.size())) << page;
  }
}

TEST_F(SessionStoreTest, IsThereAgain) {
  {
    SessionStore store(options());
    EXPECT_THAT(store.take_found(), SizeIs(0));
    const uint64_t first = store.create(), second = store.create();
    grow(store, first, 100);
    grow(store, second, 1);
    grow(store, first, 250);
    EXPECT_GT(store.used_bytes(), 5 * kFormat.page_bytes());
  }
  SessionStore store(options());
  const auto found = store.take_found();
  ASSERT_THAT(found, SizeIs(2));  // the one written last comes last
  const Conversation& said = found[1].conversation;
  EXPECT_EQ(said.log.size(), 250);
  EXPECT_EQ(said.log.common(conversation_of(260).log), 250);
  EXPECT_EQ(said.salt, "a");
  EXPECT_EQ(said.text, "what was said");
  EXPECT_THAT(said.ahead, ::testing::ElementsAre(5, 6));
  ASSERT_THAT(said.records, SizeIs(2));
  EXPECT_EQ(said.records[0]->id + said.records[0]->data, "firstdata");
  for (const FoundSession& one : found) expect_pages(store, one.number);
  grow(store, found[1].number, 300);  // and continues
  expect_pages(store, found[1].number);
}

// A partly filled page is rewritten elsewhere; its old location is free after the commit.
TEST_F(SessionStoreTest, PlacesOfPagesAreTakenAgain) {
  const auto grow_by_tens = [&](int64_t begin, int64_t end) {
    SessionStore store(options());
    const auto found = store.take_found();
    const uint64_t session = found.empty() ? store.create() : found[0].number;
    for (int64_t tokens = begin; tokens <= end; tokens += 10) {
      grow(store, session, tokens);
      expect_pages(store, session);
    }
    return std::filesystem::file_size(file("1.rows")) / kFormat.page_bytes();
  };
  // Four pages, two states of three pieces, and locations for rewriting the last page and a state.
  EXPECT_EQ(grow_by_tens(10, 200), 14u);
  EXPECT_EQ(grow_by_tens(210, 250), 14u);
}

// The process ends at its n-th disk write, for every n: committed sessions are there.
TEST_F(SessionStoreTest, SurvivesAnEndAtEveryChange) {
  bool ended = true;
  int changes = 0;
  for (; ended; ++changes) {
    std::filesystem::remove_all(dir());
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int left = changes;
      StoreOptions dying = options();
      dying.before_change = [&left] {
        if (left-- == 0) _exit(9);
      };
      SessionStore store(dying);
      const uint64_t first = store.create();
      for (const int tokens : {5, 100, 141}) {
        grow(store, first, tokens);
        if (write(told[1], &tokens, sizeof(tokens)) != sizeof(tokens)) _exit(1);
      }
      store.remove(first);
      _exit(0);
    }
    close(told[1]);
    int tokens = 0, committed = 0;
    while (read(told[0], &tokens, sizeof(tokens)) == sizeof(tokens)) committed = tokens;
    close(told[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ended = WEXITSTATUS(status) == 9;

    SessionStore store(options());
    const auto found = store.take_found();
    const bool removing = committed == 141;
    ASSERT_LE(found.size(), 1u);
    if (found.empty()) {
      EXPECT_TRUE(committed == 0 || removing) << changes;
    } else {
      EXPECT_GE(found[0].conversation.log.size(), committed);
      EXPECT_LE(found[0].conversation.log.size(), 141);
      expect_pages(store, found[0].number);
      grow(store, found[0].number, 190);
      expect_pages(store, found[0].number);
    }
  }
  EXPECT_GT(changes, 20);
}

TEST_F(SessionStoreTest, ADamagedManifestIsNoSession) {
  const std::string good = [&] {
    SessionStore store(options());
    grow(store, store.create(), 30);
    return read_file(file("1.session"));
  }();
  for (size_t at = 0; at < good.size(); at += 5) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    EXPECT_THROW(decode_manifest(bad, "here"), InputError) << at;
    EXPECT_THROW(decode_manifest(std::string_view(good).substr(0, at), "here"), InputError) << at;
  }
  write_file_atomically(file("1.session"), good + "x");
  SessionStore store(options());
  EXPECT_THAT(store.take_found(), SizeIs(0));
  EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
}

TEST_F(SessionStoreTest, DamageIsRefused) {
  {
    SessionStore store(options());
    for (int i = 0; i < 4; ++i) grow(store, store.create(), 150);
  }
  const auto damage = [&](const char* name, size_t at) {
    std::string rows = read_file(file(name));
    rows[at] = static_cast<char>(rows[at] ^ 1);
    write_file_atomically(file(name), rows);
  };
  const size_t second = kFormat.page_bytes();
  damage("1.rows", second + kFormat.rows_begin() + 5000);  // a piece of rows
  damage("2.rows", second + 3);                            // slices
  damage("3.rows", second + kPage.slices + 9);             // the checksum of the second piece
  std::filesystem::resize_file(file("4.rows"), 2 * kFormat.page_bytes());
  SessionStore store(options());
  ASSERT_THAT(store.take_found(),
              SizeIs(3));  // missing bytes are detected at once, changed ones when they are read
  ReadPool pool;
  std::vector<std::byte> header(kFormat.header_bytes());
  for (const uint64_t session : {1, 2, 3}) {
    const auto pages = store.open(session, 3, 0, pool);
    EXPECT_EQ(read_rows(*pages, 0), bytes_of(0, kToken, kPage.rows));
    try {
      read_rows(*pages, 1);
      ADD_FAILURE() << "no error";
    } catch (const LostSession& error) {
      EXPECT_EQ(error.session(), session);
      EXPECT_THAT(error.what(),
                  HasSubstr(fmt::format("{}.rows: the content is not what was", session)));
    }
    EXPECT_TRUE(pages->lost());
  }
  EXPECT_THROW(store.open(4, 1, 0, pool), LostSession);
  EXPECT_THROW(store.open(1, 4, 0, pool), LostSession);
  EXPECT_THROW(store.open(1, 3, 149, pool), LostSession);
}

TEST_F(SessionStoreTest, ADamagedStateIsRefused) {
  SessionStore store(options());
  const uint64_t session = store.create();
  grow(store, session, 60);
  grow(store, session, 70);
  EXPECT_EQ(read_state(store, session, 60), state_of(60));
  std::string rows = read_file(file("1.rows"));
  const auto last = state_of(70);
  std::string end(reinterpret_cast<const char*>(last.data() + last.size() - 70), 70);
  end += std::string(100, '\0');  // of its last location
  ASSERT_NE(rows.find(end), std::string::npos);
  rows[rows.find(end) + 69] ^= 1;
  write_file_atomically(file("1.rows"), rows);
  EXPECT_EQ(read_state(store, session, 60), state_of(60));
  EXPECT_THROW(read_state(store, session, 70), LostSession);
}

// A session whose states changed before it was written to its end goes on with what it has.
TEST_F(SessionStoreTest, AnUnfinishedStateIsDropped) {
  {
    SessionStore store(options());
    const uint64_t session = store.create();
    grow(store, session, 60);
    ASSERT_NE(store.want_states(session, {point_of(60), point_of(65)}), nullptr);
    const std::vector<std::byte> state = state_of(65);
    store.write_state(session, 65, std::span(state).first(store.piece_bytes()));
    EXPECT_THAT(store.states(session), SizeIs(1));
    store.commit(session, conversation_of(60), 0);
    expect_pages(store, session);
  }
  SessionStore store(options());
  EXPECT_THAT(store.take_found()[0].states, ::testing::ElementsAre(60));
  grow(store, 1, 90);
  expect_pages(store, 1);
}

TEST_F(SessionStoreTest, StatesThatDoNotFitTheirSessionAreNoSession) {
  SessionManifest manifest;
  manifest.page_bytes = 100;
  manifest.conversation = conversation_of(30);
  manifest.pages = {{.place = 0, .checksum = 1}};
  const auto decoded = [&](const StatePoint& point, std::vector<StoredPage> pieces) {
    manifest.states = {{point, std::move(pieces)}};
    return decode_manifest(encode_manifest(manifest), "here").states;
  };
  const StatePoint good{.tokens = 25, .open = 3, .decoded = true, .bytes = 150};
  const std::vector<StoredPage> pieces = {{1, 2}, {2, 3}};
  EXPECT_EQ(decoded(good, pieces), manifest.states);
  for (const StatePoint& bad : {StatePoint{.tokens = 31, .bytes = 150},
                                {.tokens = 0, .bytes = 150},
                                {.tokens = -1, .bytes = 150},
                                {.tokens = 25, .open = 64, .bytes = 150},
                                {.tokens = 2, .open = 3, .bytes = 150},
                                {.tokens = 25, .bytes = 0},
                                {.tokens = 25, .bytes = 201},
                                {.tokens = 25, .bytes = 100}}) {
    EXPECT_THROW(decoded(bad, pieces), InputError) << bad.tokens << " " << bad.bytes;
  }
  EXPECT_THROW(decoded(good, {{1, 2}, {0, 3}}), InputError);  // the page's location
}

// A piece is read only when it is needed, once; damage in other pieces is not detected until then.
TEST_F(SessionStoreTest, PiecesAreReadWhenTheyAreAskedFor) {
  SessionStore store(options());
  grow(store, store.create(), 300);
  std::string rows = read_file(file("1.rows"));
  rows[kFormat.page_bytes() + kFormat.rows_begin() + 8200] ^= 1;
  write_file_atomically(file("1.rows"), rows);
  ReadPool pool;
  const auto pages = store.open(1, 5, 0, pool);
  std::vector<std::byte> page_headers(5 * kFormat.header_bytes());
  pages->read_page_headers(0, page_headers);
  std::vector<std::vector<std::byte>> memory(5, std::vector<std::byte>(kPage.rows));
  std::vector<std::byte*> blocks;
  for (auto& block : memory) blocks.push_back(block.data());
  const uint64_t before = pool.bytes_read();
  const std::vector<RowBytes> wanted{{1, 4090, 12}, {3, 8990, 10}, {1, 100, 50}};
  pages->load(wanted, blocks);
  EXPECT_EQ(pool.bytes_read() - before, 2 * 4096 + 808u);
  pages->load(wanted, blocks);
  EXPECT_EQ(pool.bytes_read() - before, 2 * 4096 + 808u);
  const auto second = bytes_of(1, kToken, kPage.rows), fourth = bytes_of(3, kToken, kPage.rows);
  EXPECT_TRUE(std::equal(second.begin(), second.begin() + 8192, memory[1].begin()));
  EXPECT_EQ(memory[1][8192], std::byte{0});
  EXPECT_TRUE(std::equal(fourth.begin() + 8192, fourth.end(), memory[3].begin() + 8192));
  EXPECT_FALSE(pages->load_more(4, 9000, blocks));  // the first page
  EXPECT_EQ(memory[0], bytes_of(0, kToken, kPage.rows));
  EXPECT_THROW(pages->load_more(4, 1, blocks), LostSession);
  EXPECT_THROW(pages->load(wanted, blocks), LostSession);
}

// Sessions of another model stay until their disk space is needed.
TEST_F(SessionStoreTest, OthersGiveWay) {
  {
    SessionStore store(options("model b"));
    grow(store, store.create(), 40);
  }
  StoreOptions limited = options();
  limited.limit_bytes = 5 * kFormat.page_bytes();
  SessionStore store(limited);
  EXPECT_THAT(store.take_found(), SizeIs(0));
  EXPECT_TRUE(store.make_room(kFormat.page_bytes() / 2));
  EXPECT_TRUE(std::filesystem::exists(file("1.rows")));
  EXPECT_TRUE(store.make_room(3 * kFormat.page_bytes() / 2));
  EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
  EXPECT_EQ(store.used_bytes(), 0u);
  EXPECT_FALSE(store.make_room(6 * kFormat.page_bytes()));
}

TEST_F(SessionStoreTest, AFolderIsOneServersOwn) {
  const SessionStore store(options());
  try {
    const SessionStore second(options());
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("another process uses this folder"));
  }
}

TEST_F(SessionStoreTest, RefusesAFolderThatOthersRead) {
  std::filesystem::create_directory(dir());
  chmod(dir().c_str(), 0750);
  EXPECT_THROW(SessionStore{options()}, UsageError);
  StoreOptions file_in_its_place = options();
  file_in_its_place.dir = dir() + "/salt";
  write_file_atomically(file_in_its_place.dir, "");
  EXPECT_THROW(SessionStore{file_in_its_place}, UsageError);
}

TEST_F(SessionStoreTest, SaltsStay) {
  const std::string salt = store_salt(dir());
  EXPECT_THAT(salt, SizeIs(16));
  EXPECT_EQ(store_salt(dir()), salt);
  write_file_atomically(file("salt"), "$$$$$$$$$$$$$$$$");
  EXPECT_NE(store_salt(dir()), "$$$$$$$$$$$$$$$$");
}

}  // namespace
}  // namespace fasa::serve
