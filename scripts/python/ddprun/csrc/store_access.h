#pragma once

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "errors.h"

namespace ddprun_torch {

// Where the ranks of one group find each other.
struct MeetingPoint {
  std::string host;
  std::uint16_t port = 0;
  std::string prefix;  // of the group's keys
  std::shared_ptr<ddprun_store_server> server;
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

// The server of a TCPStore, to which each rank opens connections of its own: calls of PyTorch's client would wait for
// one another. For other stores rank 0 serves one, on this host alone, and says where. Rank 0 also chooses the keys'
// prefix, as PyTorch uses the same names again for the next group in a process.
inline MeetingPoint meet(c10d::Store& store, int rank) {
  const auto plain = without_prefixes(store);
  const auto time = std::to_string(store.add("ddprun/groups_of_rank_" + std::to_string(rank), 1));
  const auto key = "ddprun/group_" + time;
  MeetingPoint point;
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(plain.get());
  if (tcp) {
    point.host = tcp->getHost();
    point.port = tcp->getPort();
  }
  if (rank == 0) {
    if (!tcp) {
      ddprun_error error;
      point.server.reset(ddprun_store_serve("127.0.0.1", 0, &error), [](ddprun_store_server* server) {
        if (server) ddprun_store_free(server);
      });
      check(error);
    }
    const auto port = point.server ? ddprun_store_port(point.server.get()) : 0;
    const auto text = random_token() + " " + std::to_string(port);
    store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
  }
  const auto bytes = store.get(key);
  const std::string text(bytes.begin(), bytes.end());
  const auto space = text.find(' ');
  point.prefix = "ddprun/" + text.substr(0, space) + "/";
  if (!tcp) {
    point.host = "127.0.0.1";
    point.port = static_cast<std::uint16_t>(std::stoi(text.substr(space + 1)));
  }
  return point;
}

}  // namespace ddprun_torch
