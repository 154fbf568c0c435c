#include "rendezvous/static/static_exchange.h"

#include <mutex>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "common/log.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

const auto ignore = [](const std::string&) {};

StaticExchange node(int rank, int nproc, int nnodes) {
  return {.self = {.rank = rank, .local_world_size = nproc, .ddprun = true}, .nnodes = nnodes, .endpoint = "h:1"};
}

}  // namespace

TEST_CASE("an agent's entry is torchrun's JSON with one additional key") {
  CHECK(to_json({.role = "default", .rank = 1, .local_world_size = 4, .ddprun = true}) ==
        R"({"role":"default","rank":1,"local_world_size":4,"ddprun":1})");
  const RoleInfo theirs = parse_role_info(R"({"role": "trainer", "rank": 2, "local_world_size": 8})");
  CHECK(theirs.role == "trainer");
  CHECK(theirs.rank == 2);
  CHECK(theirs.local_world_size == 8);
  CHECK_FALSE(theirs.ddprun);
}

TEST_CASE("an invalid entry of an agent is refused") {
  for (const auto* text :
       {"", "[]", "{}", R"({"role":1,"rank":0,"local_world_size":1})", R"({"role":"d","rank":-1,"local_world_size":1})",
        R"({"role":"d","rank":0,"local_world_size":0})", R"({"role":"d","rank":0,"local_world_size":99999999999})"})
    CHECK_THROWS_AS(parse_role_info(text), Error);
}

TEST_CASE("ranks are contiguous blocks in order of node rank, and role ranks are counted per role") {
  const std::vector<RoleInfo> nodes = {{"a", 0, 2, true}, {"b", 1, 3, true}, {"a", 2, 1, true}};
  CHECK(assign_static_ranks(nodes) == std::vector<std::string>{"[0, 6, 0, 3]", "[2, 6, 0, 3]", "[5, 6, 2, 3]"});
}

TEST_CASE("nodes exchange ranks in any order of joining") {
  MemoryStore store;
  StaticGroup second;
  std::jthread thread([&](const std::stop_token& stop) {
    const auto mine = store.another_client();
    second = exchange_static_ranks(*mine, node(1, 3, 2), Deadline::in(20s), stop, ignore);
  });
  const StaticGroup first = exchange_static_ranks(store, node(0, 2, 2), Deadline::in(20s), {}, ignore);
  thread.join();
  CHECK(first.first_rank == 0);
  CHECK(second.first_rank == 2);
  CHECK(second.world_size == 5);
  CHECK(first.all_ddprun);
  CHECK(second.all_ddprun);
  CHECK(store.get("torchelastic/assigned_ranks/1", Deadline::in(1s)) == "[2, 5, 2, 5]");
}

TEST_CASE("a torchrun agent among them is recognised") {
  MemoryStore store;
  store.set("torchelastic/role_info/1", R"({"role": "default", "rank": 1, "local_world_size": 2})", Deadline::in(1s));
  CHECK_FALSE(exchange_static_ranks(store, node(0, 1, 2), Deadline::in(20s), {}, ignore).all_ddprun);
}

TEST_CASE("a missing node is named while waiting and in the error") {
  MemoryStore store;
  store.set("torchelastic/role_info/2", to_json({.rank = 2}), Deadline::in(1s));
  std::string waiting;
  CHECK_THROWS_WITH(exchange_static_ranks(store, node(0, 1, 4), Deadline::in(700ms), {},
                                          [&](const std::string& text) { waiting = text; }),
                    Catch::Contains("node rank 1, 3 had not joined at h:1 after "));
  CHECK(waiting == "waiting at h:1 for node rank 1, 3 of 4 nodes");
}

TEST_CASE("an exchange can be stopped") {
  MemoryStore store;
  std::stop_source source;
  source.request_stop();
  CHECK_THROWS_AS(exchange_static_ranks(store, node(0, 1, 2), Deadline::never(), source.get_token(), ignore), Error);
}

TEST_CASE("a store that stops answering ends the exit barrier with its name, long before the deadline") {
  boost::asio::io_context loop{1};
  const StoreServer server(loop, {.host = "127.0.0.1"});
  std::thread serving([&] { loop.run(); });
  const TcpStoreOptions options{.host = "127.0.0.1", .port = server.port(), .grace = 100ms};
  TcpStore waiting(options, Deadline::in(20s)), watching(options, Deadline::in(20s));

  std::mutex mutex;
  std::string log_text;
  log::set_writer([&](std::string_view line) {
    const std::lock_guard lock(mutex);
    log_text += line;
  });
  std::jthread thread([&] { wait_at_exit_barrier(waiting, 2, Deadline::in(20s), {}); });
  watching.wait({"torchelastic/agent/terminal_state/num_members"}, Deadline::in(20s));
  loop.stop();  // it is frozen: the connections are open, but not read
  serving.join();
  thread.join();
  log::set_writer(nullptr);
  CHECK_THAT(log_text, Catch::Contains("exit barrier: store " + waiting.endpoint()));
}
