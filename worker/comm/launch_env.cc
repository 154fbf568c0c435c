#include "worker/comm/launch_env.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "common/error.h"
#include "rendezvous/progress/training_memory.h"
#include "rendezvous/recovery/recovery_keys.h"
#include "rendezvous/recovery/store_notice.h"
#include "rendezvous/store/local_socket.h"
#include "rendezvous/trust/token_descriptor.h"
#include "worker/comm/backends/mpi/mpi_address.h"
#include "worker/comm/backends/mpi/mpi_library.h"

namespace ddprun {
namespace {

// The names of one launcher's variables; a name is empty if the launcher has no such variable.
struct VariableNames {
  std::string_view rank, world_size, local_rank, local_world_size;
  std::string_view required;  // the names count only if this one is set, too
  bool is_mpi;                // true if its local ranks are those on this host, and MPI knows what they do not say
};

constexpr std::array launchers = {
    VariableNames{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "", false},
    VariableNames{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                  "OMPI_COMM_WORLD_LOCAL_SIZE", "", true},
    VariableNames{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", true},
    VariableNames{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
                  "MV2_COMM_WORLD_LOCAL_SIZE", "", true},
    // A batch script has these, too; there are several processes only inside a step (srun).
    VariableNames{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_STEP_ID", false},
};

int parse(std::string_view name, std::string_view text, int least, int most, std::string_view allowed) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw make_error(Errc::usage, "the environment variable {} is \"{}\"; it should be {}", name, text, allowed);
  }
  return value;
}

std::optional<int> number(const Environment& environment, std::string_view name, int least, int most,
                          std::string_view allowed) {
  if (name.empty()) return std::nullopt;
  const auto text = environment.get(name);
  if (!text || text->empty()) return std::nullopt;
  return parse(name, *text, least, most, allowed);
}

constexpr int any = std::numeric_limits<int>::max();

const VariableNames* find_names(const Environment& environment) {
  for (const auto& each : launchers) {
    if (!each.required.empty() && !environment.get(each.required)) continue;
    const bool has_rank = !environment.get(each.rank).value_or("").empty();
    const bool has_size = !environment.get(each.world_size).value_or("").empty();
    if (has_rank && has_size) return &each;
    if (has_rank || has_size) {
      throw make_error(Errc::usage, "the environment variable {} is set but {} is not; a worker needs both",
                       has_rank ? each.rank : each.world_size, has_rank ? each.world_size : each.rank);
    }
  }
  return nullptr;
}

// PMIx leaves the size of the job and the local ranks to MPI.
bool started_by_pmix(const Environment& environment) {
  return !environment.get("PMIX_RANK").value_or("").empty() && !environment.get("PMIX_NAMESPACE").value_or("").empty();
}

void read_pmix_rank(const Environment& environment, WorkerEnv& env) {
  env.rank = *number(environment, "PMIX_RANK", 0, any, "a rank, 0 or more");
  env.world_size = env.local_world_size = 0;
}

void read_ranks(const Environment& environment, const VariableNames& names, WorkerEnv& env) {
  env.world_size = *number(environment, names.world_size, 1, any, "the number of workers, 1 or more");
  env.rank =
      *number(environment, names.rank, 0, env.world_size - 1,
              fmt::format("a rank from 0 to {}, as {} is {}", env.world_size - 1, names.world_size, env.world_size));
  env.local_world_size = number(environment, names.local_world_size, 1, env.world_size,
                                fmt::format("from 1 to {}, the number of workers", env.world_size))
                             .value_or(env.world_size);
  env.local_rank = number(environment, names.local_rank, 0, env.local_world_size - 1,
                          fmt::format("a rank from 0 to {}", env.local_world_size - 1))
                       .value_or(env.rank % env.local_world_size);
}

// Returns whether MPI's variables say that all ranks are on one host.
bool on_this_host(const Environment& environment, const VariableNames& names, const WorkerEnv& env) {
  return names.is_mpi && env.local_world_size == env.world_size &&
         !environment.get(names.local_world_size).value_or("").empty();
}

void read_master(const Environment& environment, const VariableNames* names, WorkerEnv& env) {
  const auto address = environment.get("MASTER_ADDR").value_or("");
  if (!address.empty()) {
    env.master_addr = address;
  } else if (env.world_size != 1 && !(names && on_this_host(environment, *names, env))) {
    if (!(names && names->is_mpi) && !started_by_pmix(environment))
      throw make_error(Errc::usage,
                       "the environment variable MASTER_ADDR is not set; a worker of {} needs the host of rank 0 in it",
                       env.world_size);
    env.master_addr.clear();
    // MPI has to be asked anyway.
    if (!names || environment.get(names->local_world_size).value_or("").empty()) env.local_world_size = 0;
  }
  env.master_port = static_cast<std::uint16_t>(
      number(environment, "MASTER_PORT", 1, 65535, "a port from 1 to 65535").value_or(env.master_port));
}

}  // namespace

WorkerEnv WorkerEnv::from(const Environment& environment) {
  WorkerEnv env;
  const auto* names = find_names(environment);
  if (names) {
    read_ranks(environment, *names, env);
  } else if (started_by_pmix(environment)) {
    read_pmix_rank(environment, env);
  }
  read_master(environment, names, env);
  env.use_agent_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.restart_count = number(environment, "TORCHELASTIC_RESTART_COUNT", 0, any, "a number, 0 or more").value_or(0);
  env.max_restarts = number(environment, "TORCHELASTIC_MAX_RESTARTS", 0, any, "a number, 0 or more").value_or(0);
  env.store_socket =
      rendezvous::store_socket_path(environment.get(rendezvous::store_socket_variable).value_or(""), env.master_port);
  env.token_descriptor = number(environment, token_descriptor_variable, 0, any, "a descriptor").value_or(-1);
  env.recovery = number(environment, recovery_variable, 0, any, "a number, 0 or more");
  env.store_notice = environment.get(store_notice_variable).value_or("");
  env.run_id = environment.get("TORCHELASTIC_RUN_ID").value_or("none");
  env.error_file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  env.training_record = environment.get(training_record_variable).value_or("");
  env.network_interface = environment.get("GLOO_SOCKET_IFNAME").value_or("");
  return env;
}

WorkerEnv ask_mpi(const WorkerEnv& given, std::chrono::milliseconds bound) {
  auto env = given;
  if (env.world_size != 0 && env.local_world_size != 0 && !env.master_addr.empty()) return env;
  if (!comm::mpi_available())
    throw make_error(
        Errc::usage,
        "the environment says that PMIx or MPI has started this process, but not all of RANK, WORLD_SIZE and "
        "MASTER_ADDR, and this build has no module for that MPI to ask: set them");
  auto& mpi = comm::MpiLibrary::instance(bound);
  env.rank = mpi.rank();
  env.world_size = mpi.size();
  if (env.local_world_size == 0) {
    const auto host = mpi.host();
    env.local_rank = host.rank;
    env.local_world_size = host.size;
  }
  if (env.master_addr.empty()) env.master_addr = comm::address_of_rank_zero(env.network_interface, bound);
  return env;
}

}  // namespace ddprun
