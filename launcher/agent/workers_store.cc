#include "launcher/agent/workers_store.h"

#include <algorithm>
#include <sys/socket.h>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "rendezvous/hosting/endpoint.h"
#include "rendezvous/membership/node_address.h"
#include "rendezvous/recovery/recovery_keys.h"
#include "rendezvous/trust/job_sockets.h"

namespace ddprun {
namespace {

// The key as the workers' client of the store sends it.
std::string on_wire(const std::string& key) {
  return "/" + key;
}

// The process that has connected; 0 if it is not seen from this process's namespace.
pid_t peer_process(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

void warn_of_unreachable(const Round& round, const std::string& local_addr, const std::string& problem) {
  const auto& first = round.members.front();
  const bool own = round.self == 0;
  const std::string from = !own ? fmt::format("check the --local_addr of host {}, and the network", first.host)
                           : local_addr.empty() ? "the other nodes reach this node there"
                                                : "it is this node's --local_addr";
  log::warn("the workers' store at {} cannot be reached from this node ({}), so its workers wait for it: {}",
            round.store(), problem, from);
}

}  // namespace

std::uint16_t WorkersStore::provide(const std::string& address, bool at_endpoint,
                                    std::chrono::milliseconds accept_bound,
                                    std::function<void(const Error&)> on_failure) {
  close();
  port_.reset();
  if (!spec_.policy.agent_store) return port_.emplace().port();
  if (at_endpoint) return 0;
  announced_ = 0;
  taken_lost_.clear();
  taken_over_ = false;
  server_ = std::make_unique<StoreServer>(
      loop_, StoreServerOptions{.host = listen_address(address), .admission = spec_.trust.workers});
  server_->on_accept_failure(accept_bound, std::move(on_failure));
  server_->on_set(std::string(report_part), [this] {
    announce_if_ready();
    reported_();
  });
  return server_->port();
}

void WorkersStore::answer_for(const Round& round, bool at_endpoint) {
  confirmer_.reset();
  if (!spec_.trust.credentials || round.self == 0 || at_endpoint) return;
  confirmer_ = std::make_unique<SocketConfirmer>(loop_, round.master_addr, round.master_port, spec_.trust.workers);
}

void WorkersStore::adopt(std::uint16_t port, UniqueFd connection, const std::string& sent) {
  if (!server_ || server_->port() != port) return;
  const auto process = peer_process(connection.get());
  const auto& admission = spec_.trust.workers;
  const bool admitted = !admission || admission->clients == Admission::Clients::of_user || JobSockets().counts(process);
  if (!admitted) log::warn("store: refused process {} of this host: it is none of the job's", process);
  if (!admitted) return;
  log::debug("store: admitted process {} over the agent's socket", process);
  server_->adopt(std::move(connection), sent);
}

// A store that worker 0 serves is not there yet; to a store at the endpoint the agent has a connection anyway.
void WorkersStore::probe(const Round& round, bool at_endpoint) {
  probe_.reset();
  if (!spec_.policy.agent_store || at_endpoint || is_loopback_address(round.master_addr)) return;
  probe_ = std::make_unique<StoreProbe>(
      loop_, round.master_addr, round.master_port,
      [this, round](const auto& problem) { warn_of_unreachable(round, spec_.node.address, problem); });
}

std::vector<bool> WorkersStore::able(const Round& round, const std::vector<std::string>& members) const {
  std::vector<bool> able;
  if (!serves(round)) return able;
  const RecoveryKeys keys{round.generation};
  for (const auto& member : members) {
    const auto announced = server_->find(on_wire(keys.able(member)));
    able.push_back(announced ? announced != unable_value : taken_over_ || joins_later(member));
  }
  return able;
}

std::vector<std::string> WorkersStore::got_state(const Round& round, std::vector<std::string> members) const {
  const RecoveryKeys keys{round.generation};
  std::erase_if(members, [&](const auto& member) {
    return !serves(round) || server_->find(on_wire(keys.able(member))) != got_state_value;
  });
  return members;
}

std::vector<std::pair<int, std::string>> WorkersStore::take_lost(const Round& round,
                                                                 const std::vector<std::string>& members) {
  std::vector<std::pair<int, std::string>> lost;
  if (!serves(round)) return lost;
  const RecoveryKeys keys{round.generation};
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    if (const auto seen = server_->find(on_wire(keys.lost(members[rank])));
        seen && taken_lost_.insert(members[rank]).second)
      lost.emplace_back(static_cast<int>(rank), *seen);
  return lost;
}

bool WorkersStore::is_over(const Round& round) const {
  return serves(round) && server_->find(on_wire(RecoveryKeys{round.generation}.over()));
}

void WorkersStore::announce(const Round& round, const ReplaceWorkers& replacements) {
  announce(round, replacements.generation, replacements.members);
}

void WorkersStore::announce(const RoundChanged& change, const std::vector<std::string>& members, bool has_lost) {
  awaited_.reset();
  if (!serves(change.round)) return;
  if (has_lost) return announce(change.round, change.round.group_generation, members);
  awaited_ = {.change = change, .members = members};
  announce_if_ready();
}

void WorkersStore::announce_if_ready() {
  if (!awaited_ || !are_ready(awaited_->change.round, awaited_->members)) return;
  const auto [change, members] = *std::exchange(awaited_, std::nullopt);
  announce(change.round, change.round.group_generation, members);
}

// Those that were to join in a generation that was not announced are in this one for the first time.
bool WorkersStore::are_ready(const Round& round, const std::vector<std::string>& members) const {
  const RecoveryKeys keys{round.generation};
  return std::ranges::all_of(members, [&](const auto& member) {
    return !joins_later(member) ||
           server_->find(on_wire(keys.able(member))).value_or(std::string(unable_value)) != unable_value;
  });
}

void WorkersStore::announce_leave(const Round& round, const std::vector<std::string>& leaving) {
  if (!serves(round)) return;
  server_->session_sender().set_key(on_wire(RecoveryKeys{round.generation}.leaving()), member_list(leaving));
  announce_end(round);
}

void WorkersStore::announce_end(const Round& round) {
  announce(round, announced_ + 1, {});
}

void WorkersStore::announce(const Round& round, std::uint64_t generation, const std::vector<std::string>& members) {
  if (!serves(round)) return;
  awaited_.reset();
  const RecoveryKeys keys{round.generation};
  auto& store = server_->session_sender();
  store.set_key(on_wire(keys.newest()), std::to_string(generation));
  // Workers wait for the generation after theirs, and then read the newest.
  while (announced_ < generation) store.set_key(on_wire(keys.members(++announced_)), member_list(members));
}

std::map<std::string, std::uint64_t> WorkersStore::operations() const {
  return server_ ? server_->operations() : std::map<std::string, std::uint64_t>();
}

void WorkersStore::close_connections() {
  probe_.reset();
  confirmer_.reset();
}

void WorkersStore::close() {
  awaited_.reset();
  server_.reset();
}

}  // namespace ddprun
