// Workers that mpirun starts, over the back end mpi. A section for each MPI that is installed.
#include <algorithm>
#include <filesystem>
#include <signal.h>
#include <thread>

#include "tests/process/worker.h"
#include "tests/support/free_port.h"
#include "tests/support/processes.h"

using namespace ddprun::testing;

namespace {

std::vector<std::string> mpis() {
  std::vector<std::string> found;
  for (const auto* name : {"openmpi", "mpich"}) {
    const auto module = std::filesystem::path(DDPRUN_WORKER).parent_path() / "../lib/libddprun_mpi_";
    if (std::filesystem::exists(module.string() + name + ".so") &&
        std::filesystem::exists(std::string("/usr/bin/mpirun.") + name))
      found.emplace_back(name);
  }
  return found;
}

struct Job {
  std::string mark = "DDPRUN_TEST_MARK=" + std::to_string(::getpid());
  Child child;

  // prefix comes before the worker's command line.
  Job(const std::string& mpi, int ranks, const Words& settings, const Words& prefix = {},
      const std::map<std::string, std::string>& more = {})
      : child(command(mpi, ranks, settings, prefix), variables(more)) {}

  static Words command(const std::string& mpi, int ranks, const Words& settings, const Words& prefix) {
    Words words{"/usr/bin/mpirun." + mpi, "-n", std::to_string(ranks)};
    if (mpi == "openmpi") words.emplace_back("--oversubscribe");
    words.insert(words.end(), prefix.begin(), prefix.end());
    for (const auto& each :
         {std::string(DDPRUN_WORKER), config("linear.cfg").string(), std::string("--dist.backend=mpi")})
      words.push_back(each);
    words.insert(words.end(), settings.begin(), settings.end());
    return words;
  }
  static std::map<std::string, std::string> variables(std::map<std::string, std::string> all = {}) {
    // Without its own folder for sessions, Open MPI fails if another job makes the common one at the same time.
    static const TempDir sessions;
    all.insert({{"OMP_NUM_THREADS", "1"},
                {"OMPI_MCA_orte_tmpdir_base", sessions.path().string()},
                {"MASTER_PORT", std::to_string(free_port())},
                {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                {"DDPRUN_TEST_MARK", std::to_string(::getpid())}});
    return all;
  }
  std::vector<pid_t> processes() const { return processes_with(mark); }
  // Returns those of the ranks: mpirun and its helpers are not workers.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    for (const auto pid : processes()) {
      const auto program = std::filesystem::path("/proc") / std::to_string(pid) / "comm";
      std::string name;
      std::getline(std::ifstream(program) >> std::ws, name);
      if (name.starts_with("ddprun-worker")) found.push_back(pid);
    }
    return found;
  }
};

std::string digest_over_shared_memory() {
  return digest_of(Child({DDPRUN_PROGRAM, "--nproc_per_node=2", "--standalone", DDPRUN_WORKER,
                          config("linear.cfg").string(), "--train.epochs=1"},
                         one_thread)
                       .wait(std::chrono::seconds(60)));
}

}  // namespace

TEST_CASE("workers that mpirun starts train as over shared memory") {
  if (mpis().empty()) SKIP("no MPI is installed");
  const auto expected = digest_over_shared_memory();
  for (const auto& mpi : mpis()) {
    INFO(mpi);
    Job job(mpi, 2, {"--train.epochs=1"});
    CHECK(digest_of(job.child.wait(std::chrono::seconds(60))) == expected);
  }
}

TEST_CASE("an MPI that allows calls from one thread only gets them from one") {
  if (mpis().empty()) SKIP("no MPI is installed");
  const auto expected = digest_over_shared_memory();
  for (const auto& mpi : mpis()) {
    INFO(mpi);
    Job job(mpi, 2, {"--train.epochs=1"}, {}, {{"DDPRUN_MPI_THREADS", "funneled"}});
    CHECK(digest_of(job.child.wait(std::chrono::seconds(60))) == expected);
  }
}

TEST_CASE("workers of which PMIx alone says the rank learn the rest from MPI") {
  const auto all = mpis();
  if (std::find(all.begin(), all.end(), "openmpi") == all.end()) SKIP("Open MPI is not installed");
  Words prefix{"/usr/bin/env"};
  for (const auto* name : {"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"})
    prefix.insert(prefix.end(), {"-u", std::string("OMPI_COMM_WORLD_") + name});
  Job job("openmpi", 2, {"--train.epochs=1"}, prefix);
  CHECK(digest_of(job.child.wait(std::chrono::seconds(60))) == digest_over_shared_memory());
}

TEST_CASE("a rank whose peer never calls MPI_Init_thread ends the job") {
  if (mpis().empty()) SKIP("no MPI is installed");
  const Words prefix{"/bin/sh", "-c",
                     R"(if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then exec tail -f /dev/null; fi; exec "$@")",
                     "sh"};
  for (const auto& mpi : mpis()) {
    INFO(mpi);
    Job job(mpi, 2, {"--dist.timeout=0.5"}, prefix);
    const auto result = job.child.wait(std::chrono::seconds(60));
    INFO(result.err);
    CHECK((result.code != 0 || result.signal_number != 0));
    CHECK(result.err.find("rank 0 of MPI's job") != std::string::npos);
    CHECK(result.err.find("MPI_Init_thread has waited 0.5 s") != std::string::npos);
    CHECK(job.processes().empty());
  }
}

TEST_CASE("MPI ends the whole job when a rank is killed") {
  if (mpis().empty()) SKIP("no MPI is installed");
  for (const auto& mpi : mpis()) {
    INFO(mpi);
    Job job(mpi, 3, {"--train.epochs=100000"});
    job.child.wait_for_out("epoch 2/100000", std::chrono::seconds(60));
    const auto ranks = job.ranks();
    REQUIRE(ranks.size() == 3);
    REQUIRE(::kill(ranks[1], SIGKILL) == 0);
    const auto result = job.child.wait(std::chrono::seconds(60));
    CHECK((result.code != 0 || result.signal_number != 0));
    CHECK(job.ranks().empty());
  }
}

TEST_CASE("workers that ddprun starts as an MPI job train over MPICH") {
  const auto all = mpis();
  if (std::find(all.begin(), all.end(), "mpich") == all.end()) SKIP("MPICH is not installed");
  const auto result = Child({DDPRUN_PROGRAM, "--mpi=pmi1", "--nproc_per_node=2", "--standalone", DDPRUN_WORKER,
                             config("linear.cfg").string(), "--train.epochs=1", "--dist.backend=mpi"},
                            one_thread)
                          .wait(std::chrono::seconds(60));
  CHECK(digest_of(result) == digest_over_shared_memory());
}

TEST_CASE("ranks that no mpirun has started are refused by the back end mpi") {
  if (mpis().empty()) SKIP("no MPI is installed");
  const auto result = Child({DDPRUN_PROGRAM, "--nproc_per_node=2", "--standalone", DDPRUN_WORKER,
                             config("linear.cfg").string(), "--dist.backend=mpi"},
                            Job::variables())
                          .wait(std::chrono::seconds(60));
  CHECK(result.code == 2);
  CHECK_THAT(result.err,
             Catch::StartsWith("[ddprun] error: ") &&
                 Catch::EndsWith("rank 0 and rank 1 both have the rank 0 in MPI: the back end mpi needs "
                                 "processes that were started by one mpirun, srun --mpi or ddprun --mpi\n"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}
