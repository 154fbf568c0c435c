#include "worker/comm/launch_env.h"

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "common/error.h"
#include "worker/comm/backends/mpi/mpi_address.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

WorkerEnv accepted(Variables variables) {
  return WorkerEnv::from(Environment(std::move(variables)));
}

std::string refusal(Variables variables) {
  try {
    accepted(std::move(variables));
  } catch (const Error& error) {
    CHECK(error.code() == Errc::usage);
    return error.what();
  }
  return "accepted";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an empty environment is a world of one") {
  const auto env = WorkerEnv::from(Environment{});
  CHECK(env.rank == 0);
  CHECK(env.world_size == 1);
  CHECK(env.local_world_size == 1);
  CHECK_FALSE(env.use_agent_store);
}

TEST_CASE("torchrun's variables are read") {
  const auto env = accepted({{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29400"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_MAX_RESTARTS", "3"},
                             {"TORCHELASTIC_RUN_ID", "job7"},
                             {"TORCHELASTIC_ERROR_FILE", "/tmp/e"}});
  CHECK(env.rank == 5);
  CHECK(env.world_size == 8);
  CHECK(env.local_rank == 1);
  CHECK(env.local_world_size == 4);
  CHECK(env.master_addr == "10.0.0.1");
  CHECK(env.master_port == 29400);
  CHECK(env.use_agent_store);
  CHECK(env.restart_count == 2);
  CHECK(env.max_restarts == 3);
  CHECK(env.run_id == "job7");
  CHECK(env.error_file == "/tmp/e");
}

TEST_CASE("the agent's store is used for the exact word True only") {
  CHECK_FALSE(accepted({{"TORCHELASTIC_USE_AGENT_STORE", "true"}}).use_agent_store);
  CHECK_FALSE(accepted({{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).use_agent_store);
}

TEST_CASE("MPI's and Slurm's variables replace absent ones") {
  const auto open_mpi = accepted({{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  CHECK(open_mpi.rank == 1);
  CHECK(open_mpi.local_rank == 1);
  CHECK(open_mpi.master_addr == "127.0.0.1");

  const auto mpich = accepted({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}});
  CHECK(mpich.rank == 1);
  CHECK(mpich.world_size == 2);

  Variables slurm({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}, {"MASTER_ADDR", "a"}});
  CHECK(accepted(slurm).world_size == 1);  // a batch script, not a step
  slurm["SLURM_STEP_ID"] = "0";
  CHECK(accepted(slurm).rank == 3);
  slurm["RANK"] = "0";
  slurm["WORLD_SIZE"] = "1";
  CHECK(accepted(slurm).world_size == 1);  // the plain names come first
}

TEST_CASE("an invalid variable is refused by name") {
  CHECK(contains(refusal({{"RANK", "0"}}), "WORLD_SIZE is not"));
  CHECK(contains(refusal({{"WORLD_SIZE", "2"}}), "RANK is not"));
  CHECK(contains(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}), "from 0 to 1"));
  CHECK(contains(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK is \"x\""));
  CHECK(contains(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE is \"0\""));
  CHECK(contains(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR is not set"));
  CHECK(contains(refusal({{"MASTER_PORT", "70000"}}), "a port from 1 to 65535"));
  CHECK(contains(refusal({{"TORCHELASTIC_RESTART_COUNT", "-1"}}), "TORCHELASTIC_RESTART_COUNT"));
}

TEST_CASE("rank 0's host is left to MPI where MPI's variables do not say that all ranks are on one") {
  const Variables several_hosts{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  CHECK(accepted(several_hosts).master_addr.empty());
  CHECK(accepted({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).master_addr.empty());
  CHECK(accepted({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).master_addr == "127.0.0.1");
  CHECK(accepted({{"MV2_COMM_WORLD_RANK", "1"},
                  {"MV2_COMM_WORLD_SIZE", "2"},
                  {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                  {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}})
            .master_addr == "127.0.0.1");
}

TEST_CASE("what PMIx does not say is left to MPI") {
  const auto env = accepted({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "job"}});
  CHECK(env.rank == 3);
  CHECK(env.world_size == 0);
  CHECK(env.local_world_size == 0);
  CHECK(env.master_addr.empty());
  CHECK(contains(refusal({{"PMIX_RANK", "x"}, {"PMIX_NAMESPACE", "job"}}), "PMIX_RANK is \"x\""));
  CHECK(accepted({{"PMIX_RANK", "3"}}).world_size == 1);  // left over: PMIx sets both
  CHECK(accepted({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "job"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}).world_size == 1);
}

TEST_CASE("a step of Slurm under PMIx finds rank 0 through MPI") {
  Variables step{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_ID", "0"}};
  CHECK(contains(refusal(step), "MASTER_ADDR is not set"));
  step["PMIX_RANK"] = "1";
  step["PMIX_NAMESPACE"] = "job";
  CHECK(accepted(step).world_size == 2);
  CHECK(accepted(step).master_addr.empty());
}

TEST_CASE("local ranks that MPI's variables do not say are left to MPI with rank 0's host") {
  Variables variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  CHECK(accepted(variables).local_world_size == 0);
  variables["MASTER_ADDR"] = "a";
  CHECK(accepted(variables).local_world_size == 2);
}

TEST_CASE("an environment that lacks nothing asks no MPI") {
  const auto env = ask_mpi(accepted({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}), {});
  CHECK(env.rank == 1);
  CHECK(env.master_addr == "a");
}

TEST_CASE("of rank 0's addresses the one in a network of this host is taken") {
  CHECK(comm::nearest_address({"192.168.1.4", "10.0.0.4"}, {"10.0.0.9"}) == "10.0.0.4");
  CHECK(comm::nearest_address({"10.1.0.4", "fd00::1", "10.0.0.4"}, {"172.17.0.1", "10.0.0.9"}) == "10.0.0.4");
  CHECK(comm::nearest_address({"10.1.0.4"}, {"fd00::2"}) == "10.1.0.4");
}

TEST_CASE("a variable that is set but empty counts as not set") {
  CHECK_THROWS_AS(WorkerEnv::from(Environment({{"RANK", "0"}, {"WORLD_SIZE", ""}})), Error);
  CHECK_THROWS_AS(WorkerEnv::from(Environment({{"RANK", ""}, {"WORLD_SIZE", "2"}})), Error);
}
