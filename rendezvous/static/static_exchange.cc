#include "rendezvous/static/static_exchange.h"

#include <chrono>
#include <map>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "common/printable.h"
#include "rendezvous/membership/incompatible_agent.h"
#include "rendezvous/membership/membership_text.h"

namespace ddprun {
namespace {

namespace json = boost::json;
constexpr auto slice = std::chrono::milliseconds(500);    // between two checks for a stop request or a conflict
constexpr auto reply_timeout = std::chrono::seconds(10);  // for requests whose reply needs no waiting

std::string role_key(int rank) {
  return fmt::format("torchelastic/role_info/{}", rank);
}
std::string assigned_key(int rank) {
  return fmt::format("torchelastic/assigned_ranks/{}", rank);
}

// Waits for a key, at most for a slice; returns whether it exists. Throws if the store does not reply.
bool wait_for_slice(Store& store, const std::string& key, Deadline deadline) {
  try {
    store.wait({key}, earlier(Deadline::in(slice), deadline));
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    return store.check({key}, Deadline::in(reply_timeout));
  }
}

void check_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) throw make_error(Errc::aborted, "the rendezvous was stopped");
}

// Other agents may use the run id with another back end: this node would wait for them in vain.
void check_conflict(Store& store, const StaticExchange& exchange) {
  const std::string refused(static_refusal_key);
  if (store.check({refused}, Deadline::in(reply_timeout)))
    throw Error(Errc::usage, store.get(refused, Deadline::in(reply_timeout)));
  if (!exchange.torch_server) return;
  if (exchange.torch_server->check({"torch.rendezvous." + exchange.run_id}, Deadline::in(reply_timeout)))
    throw make_error(Errc::usage,
                     "torchrun agents use run id '{}' at {} with --rdzv_backend=c10d, this node has static: set "
                     "--rdzv_backend=static and --node_rank on every node, or another --rdzv_id for another job",
                     printable(exchange.run_id), exchange.endpoint);
}

std::string missing_nodes(Store& store, int nnodes, Deadline deadline) {
  std::string missing;
  for (int rank = 0; rank < nnodes && missing.size() < 200; ++rank)
    if (!store.check({role_key(rank)}, deadline)) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
  return missing;
}

using Waiting = std::function<void(const std::string&)>;

void wait_for_all_nodes(Store& store, const StaticExchange& exchange, Deadline deadline, const std::stop_token& stop,
                        const Waiting& waiting) {
  const auto began = Deadline::Clock::now();
  std::string reported;
  for (int rank = 0; rank < exchange.nnodes;) {
    check_stop(stop);
    check_conflict(store, exchange);
    if (wait_for_slice(store, role_key(rank), deadline)) {
      ++rank;
      continue;
    }
    const std::string missing = missing_nodes(store, exchange.nnodes, Deadline::in(reply_timeout));
    if (missing.empty()) continue;
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - began);
    if (deadline.expired())
      throw make_error(Errc::timeout, "of {} nodes, node rank {} had not joined at {} after {}", exchange.nnodes,
                       missing, exchange.endpoint, duration_text(elapsed));
    if (missing != reported)
      waiting(fmt::format("waiting at {} for node rank {} of {} nodes", exchange.endpoint, missing, exchange.nnodes));
    reported = missing;
  }
}

}  // namespace

std::string to_json(const RoleInfo& info) {
  json::object object{{"role", info.role}, {"rank", info.rank}, {"local_world_size", info.local_world_size}};
  if (info.ddprun) object["ddprun"] = 1;
  return valid_json(json::serialize(object));
}

RoleInfo parse_role_info(std::string_view text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  const auto* object = error ? nullptr : value.if_object();
  const auto* role = object ? object->if_contains("role") : nullptr;
  const auto* rank = object ? object->if_contains("rank") : nullptr;
  const auto* size = object ? object->if_contains("local_world_size") : nullptr;
  const bool whole = role && role->is_string() && rank && rank->is_int64() && size && size->is_int64();
  constexpr std::int64_t most = 65536;
  if (!whole || rank->get_int64() < 0 || rank->get_int64() >= most || size->get_int64() < 1 || size->get_int64() > most)
    throw make_error(Errc::protocol, "an agent's entry is not as torchrun writes it: '{}'",
                     printable(text.substr(0, 200)));
  return {.role = std::string(role->get_string()),
          .rank = static_cast<int>(rank->get_int64()),
          .local_world_size = static_cast<int>(size->get_int64()),
          .ddprun = object->contains("ddprun")};
}

std::vector<std::string> assign_static_ranks(const std::vector<RoleInfo>& nodes) {
  int world_size = 0;
  std::map<std::string, int> role_sizes, role_ranks;
  for (const auto& node : nodes) {
    world_size += node.local_world_size;
    role_sizes[node.role] += node.local_world_size;
  }
  std::vector<std::string> assigned;
  int first_rank = 0;
  for (const auto& node : nodes) {
    assigned.push_back(
        fmt::format("[{}, {}, {}, {}]", first_rank, world_size, role_ranks[node.role], role_sizes[node.role]));
    first_rank += node.local_world_size;
    role_ranks[node.role] += node.local_world_size;
  }
  return assigned;
}

StaticGroup exchange_static_ranks(Store& store, const StaticExchange& exchange, Deadline deadline,
                                  const std::stop_token& stop, const Waiting& waiting) {
  const int self = exchange.self.rank;
  const auto reply_deadline = [&] { return earlier(deadline, Deadline::in(reply_timeout)); };
  store.set(role_key(self), to_json(exchange.self), reply_deadline());
  wait_for_all_nodes(store, exchange, deadline, stop, waiting);

  StaticGroup group{.all_ddprun = true};
  for (int rank = 0; rank < exchange.nnodes; ++rank) {
    group.nodes.push_back(parse_role_info(store.get(role_key(rank), reply_deadline())));
    group.all_ddprun &= group.nodes.back().ddprun;
    if (rank < self) group.first_rank += group.nodes.back().local_world_size;
    group.world_size += group.nodes.back().local_world_size;
  }
  if (self == 0) {
    const auto assigned = assign_static_ranks(group.nodes);
    for (int rank = 0; rank < exchange.nnodes; ++rank)
      store.set(assigned_key(rank), assigned[static_cast<std::size_t>(rank)], reply_deadline());
  }
  // The value is known already; the key means that node rank 0 has seen all nodes.
  while (!wait_for_slice(store, assigned_key(self), deadline)) {
    check_stop(stop);
    if (deadline.expired())
      throw make_error(Errc::timeout, "node rank 0 did not assign ranks at {} in time", exchange.endpoint);
  }
  return group;
}

void wait_at_exit_barrier(Store& store, int nnodes, Deadline deadline, const std::stop_token& stop) {
  const std::string folder = "torchelastic/agent/terminal_state/";
  try {
    if (store.add(folder + "num_members", 1, deadline) >= nnodes)
      store.set(folder + "last_member", "<val_ignored>", deadline);
    while (!stop.stop_requested() && !wait_for_slice(store, folder + "last_member", deadline))
      if (deadline.expired()) throw make_error(Errc::timeout, "not all of {} nodes arrived in time", nnodes);
    store.num_keys(deadline);  // its reply means that the server has applied the requests before it
  } catch (const Error& error) {
    if (!stop.stop_requested()) log::warn("exit barrier: {}", error.what());
  }
}

}  // namespace ddprun
