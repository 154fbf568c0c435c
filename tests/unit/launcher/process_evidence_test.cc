#include "launcher/workers/process_evidence.h"

#include <algorithm>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("what proc's status says of a process, in units that people read") {
  const auto facts =
      facts_of_status("Name:\tsleep\nState:\tD (disk sleep)\nVmRSS:\t    2048 kB\nThreads:\t3\nVmSwap:\t0 kB\n");
  const std::vector<ProcessFact> expected{
      {"state", "D (disk sleep)"}, {"resident memory", "2 MiB"}, {"threads", "3"}, {"swapped out", "0 KiB"}};
  CHECK(facts == expected);
  CHECK(facts_of_status("").empty());
}

TEST_CASE("the facts of this process have its processor time and its open files, those of none are none") {
  const auto facts = process_facts(::getpid());
  const auto has = [&](const std::string& name) { return std::ranges::count(facts, name, &ProcessFact::name) == 1; };
  CHECK(has("state"));
  CHECK(has("processor time"));
  CHECK(has("open files"));
  CHECK(process_facts(1 << 30).empty());
}
