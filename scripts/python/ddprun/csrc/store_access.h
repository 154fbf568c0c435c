#pragma once

#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "errors.h"

namespace ddprun_torch {

// The store by which the ranks of one group connect.
struct MeetingPoint {
  std::string host;
  std::uint16_t port = 0;
  std::string prefix{};  // prefix of the group's keys
  std::shared_ptr<ddprun_store_server> server{};
  int server_rank = -1;  // rank of the group whose process has the server; -1: the launcher
};

inline std::string random_token() {
  std::random_device device;
  char text[33];
  std::snprintf(text, sizeof text, "%08x%08x%08x%08x", device(), device(), device(), device());
  return text;
}

inline c10::intrusive_ptr<c10d::Store> without_prefixes(c10d::Store& store) {
  if (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(&store)) return prefixed->getUnderlyingNonPrefixStore();
  return c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store);
}

// PyTorch's TCPStore is in the launcher, which outlives the ranks.
inline bool launcher_has_store() {
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return agent && std::string(agent) == "True";
}

// host is "" for all addresses.
inline std::shared_ptr<ddprun_store_server> serve_store(const char* host) {
  ddprun_error error;
  auto* const server = ddprun_store_serve(host, 0, &error);
  check(error);
  return {server, ddprun_store_free};
}

// The address at which the ranks of a TCPStore reach this process; empty: on that store's host.
inline std::string address_for_ranks_of(const c10d::TCPStore& store) {
  char address[64];
  ddprun_error error;
  ddprun_address_towards(store.getHost().c_str(), store.getPort(), address, sizeof address, &error);
  check(error);
  return address;
}

// The key of a group's meeting point. PyTorch uses the same prefix of the store again for the next group in a process.
inline std::string key_of_next_group(c10d::Store& store, int rank) {
  return "ddprun/group_" + std::to_string(store.add("ddprun/groups_of_rank_" + std::to_string(rank), 1));
}

inline std::string value_from_rank_0(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  try {
    store.wait({key}, timeout);
  } catch (const c10::DistStoreError& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "ddprun: rank 0 did not join the group within ",
                     static_cast<double>(timeout.count()) / 1000, " s: ", error.what_without_backtrace());
  }
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// Ranks meet at the launcher's store, to which each opens connections of its own: calls of PyTorch's client would wait
// for one another. Any other store ends with a process that may leave the group before the others: the group's rank 0
// serves one that ends in order, and sets its address at this key. It also chooses the keys' prefix.
inline MeetingPoint meet(c10d::Store& store, int rank, const std::string& key, std::chrono::milliseconds timeout) {
  const auto plain = without_prefixes(store);
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(plain.get());
  const bool serve = !tcp || !launcher_has_store();
  MeetingPoint point{.host = tcp ? tcp->getHost() : "127.0.0.1", .server_rank = serve ? 0 : -1};
  if (rank == 0) {
    if (serve) point.server = serve_store(tcp ? "" : "127.0.0.1");
    const auto port = serve ? ddprun_store_port(point.server.get()) : tcp->getPort();
    const auto text =
        random_token() + " " + std::to_string(port) + " " + (serve && tcp ? address_for_ranks_of(*tcp) : "");
    store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
  }
  std::istringstream words(value_from_rank_0(store, key, timeout));
  std::string token, address;
  words >> token >> point.port >> address;
  point.prefix = "ddprun/" + token + "/";
  if (!address.empty()) point.host = address;
  return point;
}

}  // namespace ddprun_torch
