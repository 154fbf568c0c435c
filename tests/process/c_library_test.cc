// libddprun_c as a program in C uses it, and the symbols that the library exports.
#include <cstdio>
#include <string>

#include "tests/process/launch.h"
#include "tests/support/catch.h"

using namespace ddprun::testing;

namespace {

Child::Result run_ranks(const Words& program) {
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=3", "--no_python"};
  words.insert(words.end(), program.begin(), program.end());
  return Child(words).wait();
}

std::string output_of(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  REQUIRE(::pclose(pipe) == 0);
  return text;
}

}  // namespace

TEST_CASE("ranks in C communicate, and get errors as codes with a sentence") {
  const auto result = run_ranks({RANKS_IN_C});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  for (int rank = 0; rank < 3; ++rank)
    CHECK_THAT(result.out, Catch::Contains("rank " + std::to_string(rank) + ": the results are right over shm"));
}

TEST_CASE("ranks in C learn which peer died") {
  // A shell hides the death from the launcher, which would stop the others before they have reported their errors.
  const auto result = run_ranks({"/bin/sh", "-c", R"("$0" die; code=$?; [ $code = 137 ] || exit $code)", RANKS_IN_C});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, Catch::Contains("a peer died: code 7: rank 1"));
}

TEST_CASE("ranks in C go on when one of them is lost and replaced") {
  const auto result =
      Child({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=3", "--max_restarts=1", RANKS_IN_C, "recover"})
          .wait(std::chrono::seconds(60));
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  for (int rank = 0; rank < 3; ++rank)
    CHECK_THAT(result.out, Catch::Contains("rank " + std::to_string(rank) + ": the sum is 60"));
}

TEST_CASE("ranks in C that are not replaced alone cannot recover") {
  const auto result = run_ranks({RANKS_IN_C, "recover"});
  INFO(result.out << result.err);
  CHECK(result.code != 0);
  CHECK_THAT(result.err, Catch::Contains("begin: code 1: no rank of this job is replaced alone"));
}

TEST_CASE("the library shows its own functions and no others") {
  const auto symbols = output_of("nm -D --defined-only --format=just-symbols " DDPRUN_C_LIBRARY);
  INFO(symbols);
  CHECK_THAT(symbols, Catch::Contains("ddprun_allreduce\n"));
  CHECK(output_of("nm -D --defined-only --format=just-symbols " DDPRUN_C_LIBRARY " | grep -vc ^ddprun_ || true") ==
        "0\n");
}
