#include "launcher/cli/lists.h"

#include <csignal>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using Words = std::vector<std::string>;

TEST_CASE("local ranks are numbers of any length, separated by commas") {
  CHECK(parse_local_ranks("", "o").empty());
  CHECK(parse_local_ranks("3", "o") == std::set<int>{3});
  CHECK(parse_local_ranks("0, 12,0", "o") == std::set<int>{0, 12});
  for (const char* bad : {"a", "1,,2", ",", "-1", "1:2", "0x1"}) {
    INFO(bad);
    CHECK_THROWS_WITH(parse_local_ranks(bad, "local_ranks_filter"),
                      "--local_ranks_filter = " + std::string(bad) + ": expected local ranks, RANK[,RANK...]");
  }
}

TEST_CASE("texts are separated by commas, and two commas are one comma in a text") {
  CHECK(parse_texts("").empty());
  CHECK(parse_texts("loss") == Words{"loss"});
  CHECK(parse_texts("loss, step,a") == Words{"loss", " step", "a"});
  CHECK(parse_texts("a,,b,c") == Words{"a,b", "c"});
  CHECK(parse_texts("a,,,b") == Words{"a,", "b"});
  CHECK(parse_texts("a,") == Words{"a"});
  CHECK(parse_texts(",a") == Words{"a"});
}

TEST_CASE("signals have the system's names") {
  CHECK(parse_signals("SIGTERM,SIGINT, SIGUSR1 ,SIGTERM", "o") == std::vector<int>{SIGTERM, SIGINT, SIGUSR1});
  CHECK(parse_signals("", "o").empty());
  CHECK_THROWS_WITH(parse_signals("SIGTERM,TERM", "signals_to_handle"),
                    "--signals_to_handle = SIGTERM,TERM: 'TERM' is not a signal; expected names like SIGTERM,SIGINT");
  CHECK_THROWS_WITH(parse_signals("SIGKILL", "s"), "--s = SIGKILL: SIGKILL cannot be handled: no process can catch it");
  CHECK_THROWS_WITH(parse_signals("SIGCHLD", "s"),
                    "--s = SIGCHLD: SIGCHLD cannot be handled: it tells ddprun that a worker has exited");
  CHECK_THROWS_AS(parse_signals("SIGSEGV", "s"), Error);
}
