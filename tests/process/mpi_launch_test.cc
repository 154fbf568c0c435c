// Programs of MPICH that ddprun starts: --mpi=pmi1.
#include <csignal>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"

using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds timeout{60};

Words mpi_job(const Words& options, const Words& arguments) {
  Words words{DDPRUN_PROGRAM, "--mpi=pmi1"};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back(MPI_PROGRAM);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

struct Run {
  Marker marker;
  Child::Result result;
};
// Runs a job of one node with these arguments of the workers.
Run run(const Words& arguments, const Words& options = {}) {
  Run run;
  Words all{"--standalone", "--nproc_per_node=2"};
  all.insert(all.end(), options.begin(), options.end());
  run.result = Child(mpi_job(all, arguments), run.marker.variables()).wait(timeout);
  UNSCOPED_INFO(run.result.out << run.result.err);
  return run;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ddprun starts an MPI program") {
  const auto job = run({"sum"}, {"--nproc_per_node=4"});
  CHECK(job.result.code == 0);
  for (const auto* rank : {"0", "1", "2", "3"})
    CHECK(contains(job.result.out, std::string("rank ") + rank + " of 4, 4 on this host: sum 6"));
}

TEST_CASE("two nodes are one MPI job") {
  const auto endpoint = "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port());
  const auto node = [&](const char* serves) {
    return mpi_job({"--nnodes=2", "--nproc_per_node=2", endpoint, std::string("--rdzv_conf=is_host=") + serves},
                   {"sum"});
  };
  Child first(node("true")), second(node("false"));
  const auto result = first.wait(timeout), other = second.wait(timeout);
  INFO(result.out << result.err << other.out << other.err);
  CHECK(result.code == 0);
  CHECK(contains(result.out + other.out, "rank 3 of 4, 2 on this host: sum 6"));
}

TEST_CASE("a node whose workers end without MPI_Init does not leave the other waiting") {
  const auto endpoint = "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port());
  const auto node = [&](const char* serves) {
    return Words{DDPRUN_PROGRAM,
                 "--mpi=pmi1",
                 "--nnodes=2",
                 endpoint,
                 std::string("--rdzv_conf=is_host=") + serves,
                 "/bin/sh",
                 "-c",
                 "test $GROUP_RANK = 0 || exec " MPI_PROGRAM};
  };
  Child first(node("true")), second(node("false"));
  const auto result = first.wait(timeout), other = second.wait(timeout);
  INFO(result.err << other.err);
  CHECK(result.code != 0);
  CHECK(contains(result.err + other.err, "its workers have ended without entering it"));
}

TEST_CASE("an MPI job whose rank is killed ends with its report, and restarts") {
  const Marker marker;
  Child job(mpi_job({"--standalone", "--nproc_per_node=2", "--max_restarts=1"}, {"wait"}), marker.variables());
  const auto waiting = [&](std::size_t times) {
    job.wait_until(
        [&] {
          std::size_t count = 0;
          for (const auto& line : lines_of(job.out())) count += contains(line, "waiting");
          return count == times;
        },
        "waiting ranks", timeout);
  };
  for (const std::size_t attempt : {1, 2}) {
    waiting(2 * attempt);
    REQUIRE(::kill(marker.process_named("ddprun-mpi-prog"), SIGKILL) == 0);
  }
  const auto result = job.wait(timeout);
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(contains(result.err, "SIGKILL"));
  CHECK(marker.processes() == 0);
}

TEST_CASE("MPI_Abort ends the job with its exit code") {
  const auto job = run({"abort", "3"});
  CHECK(job.result.code == 3);
  CHECK(contains(job.result.err, "rank 0 (local rank 0"));
  CHECK(contains(job.result.err, "it called MPI_Abort with exit code 3"));
  CHECK(job.marker.processes() == 0);
  CHECK(run({"abort", "0"}).result.code == 1);
}

TEST_CASE("a rank that exits while others wait for it in MPI has failed") {
  const auto left = run({"leave"});
  CHECK(left.result.code == 1);
  CHECK(contains(left.result.err, "it exited without MPI_Finalize"));
  const auto absent = run({"absent"});
  CHECK(absent.result.code == 1);
  CHECK(contains(absent.result.err, "it exited without MPI_Init"));
  CHECK(absent.marker.processes() == 0);
}

TEST_CASE("workers that are no MPI processes run as without --mpi") {
  const auto result =
      Child({DDPRUN_PROGRAM, "--mpi=pmi1", "--standalone", "--nproc_per_node=2", "/bin/true"}).wait(timeout);
  CHECK(result.code == 0);
  CHECK(result.err.empty());
}

TEST_CASE("a node without --mpi is refused by an MPI job") {
  const Words meeting{"--nnodes=2", "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port())};
  const auto options = [&](Words more) {
    more.insert(more.end(), meeting.begin(), meeting.end());
    return more;
  };
  Child first(mpi_job(options({"--rdzv_conf=is_host=true"}), {"sum"}));
  first.wait_for_err("1 of 2 nodes are here", timeout);
  auto words = options({DDPRUN_PROGRAM, "--rdzv_conf=is_host=false"});
  words.emplace_back(MPI_PROGRAM);
  const auto refused = Child(words).wait(timeout);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "--mpi off where the job has on"));
}

TEST_CASE("several nodes of an MPI job need the store of an agent") {
  const auto result = Child(mpi_job({"--nnodes=2", "--no_agent_store"}, {"sum"})).wait(timeout);
  CHECK(result.code == 2);
  CHECK(contains(result.err, "--no_agent_store"));
  const auto fixed = Child(mpi_job({"--nnodes=2", "--rdzv_backend=static"}, {"sum"})).wait(timeout);
  CHECK(fixed.code == 2);
  CHECK(contains(fixed.err, "--rdzv_backend=c10d or etcd"));
}
