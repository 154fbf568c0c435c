#include "worker/comm/backends/mpi/mpi_environment.h"

#include <array>
#include <string_view>

#include "common/error.h"

namespace ddprun::comm {
namespace {

// Variables that the launchers of an MPI set.
struct Starter {
  std::string_view rank, mpi;
};
constexpr std::array starters = {
    Starter{"OMPI_COMM_WORLD_RANK", "openmpi"},
    Starter{"PMI_RANK", "mpich"},  // also set by Intel MPI and Slurm, which start MPICH and its derivatives
    Starter{"MV2_COMM_WORLD_RANK", "mpich"},
    Starter{"PMIX_RANK", "openmpi"},
};

constexpr std::array thread_levels = {"single", "funneled", "serialized", "multiple"};  // in the order of ThreadLevel

}  // namespace

std::string mpi_of(const Environment& environment) {
  if (auto forced = environment.get("DDPRUN_MPI").value_or(""); !forced.empty()) {
    if (forced != "openmpi" && forced != "mpich")
      throw make_error(Errc::usage, "the environment variable DDPRUN_MPI is \"{}\"; it should be openmpi or mpich",
                       forced);
    return forced;
  }
  for (const auto& [variable, mpi] : starters)
    if (environment.get(variable)) return std::string(mpi);
  return "";
}

std::optional<std::string> mpi_rank_of(const Environment& environment) {
  for (const auto& [variable, mpi] : starters)
    if (auto rank = environment.get(variable)) return rank;
  return std::nullopt;
}

ThreadLevel wanted_thread_level(const Environment& environment) {
  const auto text = environment.get("DDPRUN_MPI_THREADS").value_or("");
  if (text.empty()) return ThreadLevel::multiple;
  for (std::size_t i = 0; i < thread_levels.size(); ++i)
    if (text == thread_levels[i]) return static_cast<ThreadLevel>(i);
  throw make_error(
      Errc::usage,
      "the environment variable DDPRUN_MPI_THREADS is \"{}\"; it should be single, funneled, serialized or "
      "multiple",
      text);
}

}  // namespace ddprun::comm
