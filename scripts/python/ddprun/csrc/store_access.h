#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "errors.h"

namespace ddprun_torch {

// Where the ranks of one group find each other.
struct MeetingPoint {
  std::string host;
  std::uint16_t port = 0;
  std::string prefix{};  // of the group's keys
  std::shared_ptr<ddprun_store_server> server{};
  int server_rank = -1;  // of the group, whose process has the server; -1: the launcher, or not known
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

// The server of a TCPStore alone, for ranks that agree on a prefix by themselves.
inline MeetingPoint tcp_meeting_point(c10d::Store& store) {
  const auto plain = without_prefixes(store);
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(plain.get());
  TORCH_CHECK_VALUE(tcp, "ddprun: reconfigure() needs a TCPStore (init_method env:// or tcp://)");
  return {.host = tcp->getHost(), .port = tcp->getPort()};
}

// Which rank of a group has PyTorch's TCPStore in its process: that of rank 0 of all ranks, if it is in the group; -1
// if the launcher has it.
inline std::optional<int> rank_with_tcp_store(const std::vector<std::uint64_t>& global_ranks) {
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent && std::string(agent) == "True") return -1;
  if (global_ranks.empty()) return 0;
  const auto place = std::find(global_ranks.begin(), global_ranks.end(), 0U);
  if (place == global_ranks.end()) return std::nullopt;
  return static_cast<int>(place - global_ranks.begin());
}

// host: "" for all addresses.
inline std::shared_ptr<ddprun_store_server> serve_store(const char* host) {
  ddprun_error error;
  auto* const server = ddprun_store_serve(host, 0, &error);
  check(error);
  return {server, ddprun_store_free};
}

// Where the ranks of a TCPStore reach this process; empty: on that store's host.
inline std::string address_for_ranks_of(const c10d::TCPStore& store) {
  char address[64];
  ddprun_error error;
  ddprun_address_towards(store.getHost().c_str(), store.getPort(), address, sizeof address, &error);
  check(error);
  return address;
}

// The server of a TCPStore, to which each rank opens connections of its own: calls of PyTorch's client would wait for
// one another. server_rank: of the group, whose process has that server; -1: the launcher; none: another process, which
// may end before the group does. Then, and for other stores, the group's rank 0 serves one and says where. It also
// chooses the keys' prefix, as PyTorch uses the same names again for the next group in a process.
inline MeetingPoint meet(c10d::Store& store, int rank, std::optional<int> server_rank) {
  const auto plain = without_prefixes(store);
  const auto time = std::to_string(store.add("ddprun/groups_of_rank_" + std::to_string(rank), 1));
  const auto key = "ddprun/group_" + time;
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(plain.get());
  const bool serve = !tcp || !server_rank;
  MeetingPoint point{.host = tcp ? tcp->getHost() : "127.0.0.1", .server_rank = serve ? 0 : *server_rank};
  if (rank == 0) {
    if (serve) point.server = serve_store(tcp ? "" : "127.0.0.1");
    const auto port = serve ? ddprun_store_port(point.server.get()) : tcp->getPort();
    const auto text =
        random_token() + " " + std::to_string(port) + " " + (serve && tcp ? address_for_ranks_of(*tcp) : "");
    store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
  }
  const auto bytes = store.get(key);
  std::istringstream words(std::string(bytes.begin(), bytes.end()));
  std::string token, address;
  words >> token >> point.port >> address;
  point.prefix = "ddprun/" + token + "/";
  if (!address.empty()) point.host = address;
  return point;
}

}  // namespace ddprun_torch
