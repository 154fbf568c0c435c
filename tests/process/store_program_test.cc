// ddprun-store, started and stopped as by a user.
#include <algorithm>
#include <csignal>
#include <deque>
#include <fstream>
#include <memory>
#include <sys/stat.h>

#include "rendezvous/store/tcp_store.h"
#include "rendezvous/trust/authentication_error.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("ddprun-store prints its endpoint, serves, and exits with 0 on SIGTERM") {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    Child store({STORE_PROGRAM, "--port", "0", "--host", "127.0.0.1"});
    store.wait_for_out("\n");
    const std::string line = "ddprun-store listens at 127.0.0.1:";
    REQUIRE(store.out().starts_with(line));
    const auto soon = Deadline::in(std::chrono::seconds(20));
    TcpStore client(
        {.host = "127.0.0.1", .port = static_cast<std::uint16_t>(std::stoi(store.out().substr(line.size())))}, soon);
    CHECK(client.add("n", 1, soon) == 1);
    store.signal(signal_number);
    const auto result = store.wait();
    CHECK(result.code == 0);
    CHECK(result.signal_number == 0);
    CHECK(result.err.empty());
  }
}

TEST_CASE("ddprun-store with a token file admits who knows the token, and refuses a file that others may read") {
  const TempDir folder;
  const auto file = (folder / "token").string();
  std::ofstream(file) << std::string(64, 'c') << '\n';
  REQUIRE(::chmod(file.c_str(), 0600) == 0);
  Child store({STORE_PROGRAM, "--port=0", "--host=127.0.0.1", "--token_file", file});
  store.wait_for_out("\n");
  const auto port = static_cast<std::uint16_t>(std::stoi(store.out().substr(store.out().rfind(':') + 1)));
  const auto soon = Deadline::in(std::chrono::seconds(20));
  const auto add = [&](char digit) {
    const auto credentials = std::make_shared<Credentials>(Secret::from_hex(std::string(64, digit)), "a job");
    return TcpStore({.host = "127.0.0.1", .port = port, .credentials = credentials, .refusal_patience = {}}, soon)
        .add("n", 1, soon);
  };
  CHECK(add('c') == 1);
  CHECK_THROWS_AS(add('d'), AuthenticationError);
  REQUIRE(::chmod(file.c_str(), 0640) == 0);
  const auto result = run_child({STORE_PROGRAM, "--port=0", "--token_file", file});
  CHECK(result.code == 2);
  CHECK(result.err.find("chmod 600") != std::string::npos);
}

TEST_CASE("ddprun-store serves more connections than a shell's limit on open files, where the system permits") {
  Child store({"/bin/sh", "-c", "ulimit -Sn 32; exec \"$@\"", "sh", STORE_PROGRAM, "--port=0", "--host=127.0.0.1"});
  store.wait_for_out("\n");
  const auto port = static_cast<std::uint16_t>(std::stoi(store.out().substr(store.out().rfind(':') + 1)));
  const auto soon = Deadline::in(std::chrono::seconds(20));
  std::deque<TcpStore> clients;
  for (int i = 1; i <= 40; ++i) {
    clients.emplace_back(TcpStoreOptions{.host = "127.0.0.1", .port = port}, soon);
    CHECK(clients.back().add("n", 1, soon) == i);
  }
}

TEST_CASE("ddprun-store takes a user's mistake as one line and exit code 2, a port in use as 1") {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {STORE_PROGRAM, "--port", "x"}, {STORE_PROGRAM, "--port", "65536"}, {STORE_PROGRAM, "--prot", "1"}}) {
    const auto result = run_child(arguments);
    CHECK(result.code == 2);
    CHECK(result.err.starts_with("[ddprun-store] error: "));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  Child store({STORE_PROGRAM, "--port", "0"});
  store.wait_for_out("\n");
  const auto port = store.out().substr(store.out().rfind(':') + 1);
  const auto second = run_child({STORE_PROGRAM, "--port", port.substr(0, port.size() - 1)});
  CHECK(second.code == 1);
  CHECK(second.err.find("cannot listen at *:" + port.substr(0, port.size() - 1)) != std::string::npos);
}

TEST_CASE("ddprun-store ends with an error if its output cannot be written") {
  for (const std::string option : {"--port=0", "--help"}) {
    const auto result = run_child({"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh", STORE_PROGRAM, option});
    CHECK(result.code == 1);
    CHECK(result.err == "[ddprun-store] error: cannot write to standard output: No space left on device\n");
  }
}
