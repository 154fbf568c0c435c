#include "worker/comm/backends/mpi/bounded_call.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

// Returns the wait status of a process of its own that runs body.
template <class Body>
int status_of(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(7);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a call of MPI that does not return ends its process, which says why") {
  const testing::TempDir folder;
  const auto file = (folder / "error.json").string();
  const int status = status_of([&] {
    ::setenv("TORCHELASTIC_ERROR_FILE", file.c_str(), 1);
    ::setenv("PMI_RANK", "3", 1);
    const comm::BoundedCall bounded("MPI_Finalize", 20ms);
    while (true) ::pause();
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  CHECK_THAT(text, Catch::Contains("rank 3 of MPI's job") && Catch::Contains("MPI_Finalize has waited 0.02 s") &&
                       Catch::Contains("\"consequence\":true"));
}

TEST_CASE("a call of MPI that returns in time is let be") {
  const int status = status_of([] { const comm::BoundedCall bounded("MPI_Init_thread", std::chrono::hours(1)); });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}
