// Sessions on disk: there again after any end of the process, and refused when they are damaged.
#include "runtime/serve/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/output_file.h"
#include "tests/llm/temp_model.h"

namespace fasa::serve {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr uint64_t kTokenBytes = 24;

class SessionStoreTest : public testing::Test {
 protected:
  StoreOptions options(const std::string& fingerprint = "model a") const {
    return {.dir = dir(), .fingerprint = fingerprint, .token_bytes = kTokenBytes};
  }
  std::string dir() const { return folder_.path() + "/sessions"; }
  std::string file(const char* name) const { return dir() + "/" + name; }

 private:
  llm_test::TempDir folder_;
};

std::vector<std::byte> rows_of(int64_t first, int64_t tokens) {
  std::vector<std::byte> rows(static_cast<size_t>(tokens) * kTokenBytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::byte>(static_cast<size_t>(first) * kTokenBytes * 7 + i * 13);
  }
  return rows;
}

Conversation conversation_of(int64_t tokens) {
  Conversation conversation{.salt = "a", .text = "what was said", .ahead = {5, 6}};
  for (int64_t i = 0; i < tokens; ++i) {
    conversation.log.append(static_cast<int32_t>(3 * i),
                            i % 5 == 4 ? Computed::kDecode : Computed::kPrefill);
  }
  return conversation;
}

// In chunks of 7.
void grow(SessionStore& store, uint64_t session, int64_t tokens) {
  for (int64_t at = store.written(session); at < tokens; at = store.written(session)) {
    const int64_t chunk = std::min<int64_t>(7, tokens - at);
    store.write(session, chunk, rows_of(at, chunk));
  }
  store.commit(session, conversation_of(tokens));
}

// All rows of a session are what grow() wrote.
void expect_rows(const SessionStore& store, uint64_t session) {
  std::vector<std::byte> rows;
  for (int64_t at = 0; at < store.committed(session);) {
    const RowChunk chunk = store.chunk_at(session, at);
    ASSERT_EQ(chunk.first, at);
    store.read(session, chunk, &rows);
    ASSERT_EQ(rows, rows_of(at, chunk.tokens));
    at += chunk.tokens;
  }
}

TEST_F(SessionStoreTest, IsThereAgain) {
  {
    SessionStore store(options());
    EXPECT_THAT(store.take_found(), SizeIs(0));
    const uint64_t first = store.create(), second = store.create();
    grow(store, first, 20);
    grow(store, second, 1);
    grow(store, first, 50);
    EXPECT_GT(store.used_bytes(), 51 * kTokenBytes);
  }
  SessionStore store(options());
  const auto found = store.take_found();
  ASSERT_THAT(found, SizeIs(2));  // the one written last comes last
  const Conversation& said = found[1].conversation;
  EXPECT_EQ(said.log.size(), 50);
  EXPECT_EQ(said.log.common(conversation_of(60).log), 50);
  EXPECT_EQ(said.salt, "a");
  EXPECT_EQ(said.text, "what was said");
  EXPECT_THAT(said.ahead, testing::ElementsAre(5, 6));
  for (const FoundSession& one : found) expect_rows(store, one.number);
  grow(store, found[1].number, 64);  // and goes on
  expect_rows(store, found[1].number);
}

// A process that ends at its n-th change of the disk, for every n: what was committed is there.
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
      for (const int tokens : {5, 20, 41}) {
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
    const bool removing = committed == 41;
    ASSERT_LE(found.size(), 1u);
    if (found.empty()) {
      EXPECT_TRUE(committed == 0 || removing) << changes;
    } else {
      EXPECT_GE(found[0].conversation.log.size(), committed);
      EXPECT_LE(found[0].conversation.log.size(), 41);
      expect_rows(store, found[0].number);
      grow(store, found[0].number, 50);
      expect_rows(store, found[0].number);
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

TEST_F(SessionStoreTest, DamagedRowsAreRefused) {
  {
    SessionStore store(options());
    grow(store, store.create(), 30);
    grow(store, store.create(), 30);
  }
  std::string rows = read_file(file("1.rows"));
  rows[10 * kTokenBytes] ^= 1;
  write_file_atomically(file("1.rows"), rows);
  std::filesystem::resize_file(file("2.rows"), 29 * kTokenBytes);
  SessionStore store(options());
  const auto found = store.take_found();
  ASSERT_THAT(found, SizeIs(1));  // fewer bytes show at once, others when they are read
  std::vector<std::byte> read;
  store.read(1, store.chunk_at(1, 0), &read);
  try {
    store.read(1, store.chunk_at(1, 10), &read);
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("1.rows: tokens 7 to 13 are not what was written"));
  }
  EXPECT_THROW(store.chunk_at(1, 30), InputError);
  EXPECT_THROW(store.chunk_at(77, 0), InputError);
}

// Those of another model are left alone until their room is needed.
TEST_F(SessionStoreTest, OthersGiveWay) {
  {
    SessionStore store(options("model b"));
    grow(store, store.create(), 40);
  }
  StoreOptions limited = options();
  limited.limit_bytes = 60 * kTokenBytes + 2000;
  SessionStore store(limited);
  EXPECT_THAT(store.take_found(), SizeIs(0));
  EXPECT_TRUE(store.make_room(10 * kTokenBytes));
  EXPECT_TRUE(std::filesystem::exists(file("1.rows")));
  EXPECT_TRUE(store.make_room(55 * kTokenBytes + 1000));
  EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
  EXPECT_EQ(store.used_bytes(), 0u);
  EXPECT_FALSE(store.make_room(200 * kTokenBytes));
}

TEST_F(SessionStoreTest, AFolderIsOneServersOwn) {
  const SessionStore store(options());
  try {
    const SessionStore second(options());
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("another process keeps its sessions there"));
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
