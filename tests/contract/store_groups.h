#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/group_options.h"
#include "tests/contract/group_contract.h"

namespace ddprun::contract {

// Forms groups through a store server of their own. make is a back end's function.
template <class Make>
Groups make_groups(Make make, int size, std::chrono::milliseconds timeout) {
  const auto server = std::make_shared<StoreServerThread>(StoreServerOptions{.host = "127.0.0.1"});
  // Every group holds a reference, so that the server exists as long as they do.
  const auto connect = [server] {
    return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = server->port()},
                                      Deadline::in(std::chrono::seconds(10)));
  };
  Groups groups(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      groups[static_cast<std::size_t>(rank)] =
          make(GroupOptions{.rank = rank,
                            .size = size,
                            .connect_store = connect,
                            .config = {.timeout = timeout, .heartbeat = std::chrono::milliseconds(200)}});
    });
  }
  for (auto& thread : threads) thread.join();
  return groups;
}

}  // namespace ddprun::contract
