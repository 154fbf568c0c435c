#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "rendezvous/store/store.h"

namespace ddprun::comm {

// Connections to the store that a group which forms takes in place of new ones, each once. Threads: one at a time.
struct ReadyStores {
  std::shared_ptr<Store> monitor = nullptr;    // the peer monitor's; it has the rank's last will for the group
  std::shared_ptr<Store> bootstrap = nullptr;  // the one by which ranks exchange addresses: used while the group forms
};

// Returns the connection, which is then taken, or a new one if there is none.
inline std::shared_ptr<Store> take_or(std::shared_ptr<Store>* ready,
                                      const std::function<std::shared_ptr<Store>()>& connect) {
  auto store = ready ? std::exchange(*ready, nullptr) : nullptr;
  return store ? store : connect();
}

}  // namespace ddprun::comm
