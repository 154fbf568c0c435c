#include <thread>
#include <vector>

#include "common/error.h"
#include "worker/comm/backends/mpi/mpi_calls.h"
#include "worker/comm/backends/mpi/mpi_environment.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

// An MPI whose functions write down which thread called them. They have no context.
std::vector<std::thread::id> callers;

MpiFunctions recording_mpi() {
  MpiFunctions mpi{};
  mpi.version = MpiFunctions::current_version;
  mpi.name = "fake";
  mpi.finalize = [] {
    callers.push_back(std::this_thread::get_id());
    return 0;
  };
  mpi.broadcast_in_world = [](void*, int bytes, int root) {
    callers.push_back(std::this_thread::get_id());
    return bytes + root;
  };
  return mpi;
}

ThreadLevel level_of(const std::string& text) {
  Environment environment;
  environment.set("DDPRUN_MPI_THREADS", text);
  return wanted_thread_level(environment);
}

}  // namespace

TEST_CASE("functions of MPI run on one thread, whichever thread calls them") {
  callers.clear();
  const auto mpi = recording_mpi();
  MpiThread thread;
  std::thread::id own;
  thread.run([&] { own = std::this_thread::get_id(); });
  MpiCalls calls(mpi);
  calls.run_on(thread);
  CHECK(std::string(calls.name()) == "fake");
  CHECK(calls.call<&MpiFunctions::broadcast_in_world>(nullptr, 40, 2) == 42);
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) others.emplace_back([&] { calls.call<&MpiFunctions::finalize>(); });
  for (auto& each : others) each.join();
  CHECK(own != std::this_thread::get_id());
  CHECK(callers == std::vector<std::thread::id>(5, own));
}

TEST_CASE("DDPRUN_MPI_THREADS says what MPI is asked for") {
  CHECK(level_of("") == ThreadLevel::multiple);
  CHECK(level_of("funneled") == ThreadLevel::funneled);
  CHECK_THROWS_WITH(level_of("many"), Catch::Contains("DDPRUN_MPI_THREADS is \"many\""));
}
