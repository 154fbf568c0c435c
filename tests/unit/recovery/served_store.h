#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>

#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"

namespace ddprun::testing {

// A store's server, and connections to it whose waits end when stop is requested.
struct ServedStore {
  std::optional<StoreServerThread> server{std::in_place};

  std::shared_ptr<Store> connect(const std::stop_token& stop = {}) const {
    return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = server->port(), .stop = stop},
                                      Deadline::in(std::chrono::seconds(10)));
  }
};

}  // namespace ddprun::testing
