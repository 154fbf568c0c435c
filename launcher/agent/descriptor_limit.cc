#include "launcher/agent/descriptor_limit.h"

#include <sys/resource.h>

#include "common/error.h"

namespace ddprun {
namespace {

// Measured: 28 with standard streams, event loop, signals, guardians, rendezvous and workers' store, one session, the
// netlink socket for socket owners, control socket, memory of the workers' training, log folder and kernel log; then an
// event log, a watchdog's pipe, a client of the control socket, and one more connection, so that a server can accept
// and close.
constexpr std::uint64_t own_descriptors = 32;

// The listener of the page, a request to the rendezvous server or the workers' store, and some clients; further clients
// wait.
constexpr std::uint64_t dashboard_descriptors = 10;

// The socket that keeps network links cut.
constexpr std::uint64_t cut_descriptors = 1;

// Pipes for the two output streams and the result of exec; the copies of tee'd streams; a socket for PMI, both ends.
constexpr std::uint64_t pipes_of_worker = 3;
constexpr std::uint64_t tee_files_of_worker = 2;
constexpr std::uint64_t pmi_ends_of_worker = 2;

// A worker with process groups has connections for its requests, its heartbeats and its waits.
constexpr std::uint64_t connections_of_worker = 3;
// A worker that can recover has more: for the agreement, to notice departures, and while it waits for a decision.
constexpr std::uint64_t connections_of_recovery = 3;

}  // namespace

std::uint64_t needed_descriptors(const AgentSpec& spec, const ServedClients& clients) {
  const std::uint64_t local = pipes_of_worker + (spec.group.output.tee.any() ? tee_files_of_worker : 0) +
                              (spec.group.exported.pmi ? pmi_ends_of_worker : 0);
  const bool cuts = spec.faults && spec.faults->has(FaultKind::cut);
  return own_descriptors + (spec.dashboard ? dashboard_descriptors : 0) + (cuts ? cut_descriptors : 0) +
         local * static_cast<std::uint64_t>(spec.node.nproc) +
         (connections_of_worker + (spec.group.exported.recovery ? connections_of_recovery : 0)) *
             static_cast<std::uint64_t>(clients.connections_of_workers) +
         static_cast<std::uint64_t>(clients.sessions);
}

void check_descriptor_limit(const AgentSpec& spec, const ServedClients& clients) {
  rlimit limit{};
  const auto needed = needed_descriptors(spec, clients);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const int served = clients.connections_of_workers;
  const std::string others =
      served > spec.node.nproc ? fmt::format(" here and {} elsewhere", served - spec.node.nproc) : "";
  throw make_error(
      Errc::io, "too many open files: ddprun needs {} descriptors for {} worker{}{}, and the limit is {} (ulimit -n)",
      needed, spec.node.nproc, spec.node.nproc == 1 ? "" : "s", others, limit.rlim_cur);
}

}  // namespace ddprun
