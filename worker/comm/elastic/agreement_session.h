#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/elastic/agreement.h"
#include "ddprun/worker/comm/elastic/peer_list.h"

// Carries an agreement's requests out in the store.
namespace ddprun::comm {

// From when a member is counted in until its group has wills of its own: a death then breaks the group that the others
// come together in. Each attempt's group has keys of its own, so that nothing is left of one that was cancelled.
class DeferredLastWill {
 public:
  DeferredLastWill(std::shared_ptr<Store> store, const Agreement& agreement, const std::string& group);
  ~DeferredLastWill();
  DeferredLastWill(const DeferredLastWill&) = delete;
  DeferredLastWill& operator=(const DeferredLastWill&) = delete;

  // The others learn why this member does not come to the group, unless they know of a failure already.
  void tell(const std::exception& cause) noexcept;

 private:
  const std::shared_ptr<Store> store_;
  const std::string group_;
  const std::string who_;
};

struct AgreementSetting {
  std::shared_ptr<Store> store;  // whose will is free
  std::function<std::shared_ptr<Store>()> connect;
  std::string prefix;  // of the keys of all generations
  std::chrono::milliseconds timeout;
  std::stop_token stop;
  std::optional<std::uint64_t> stood;      // the last generation whose group stood here
  std::shared_ptr<const PeerList> former;  // the last that was agreed upon, if any
  std::set<std::string> known_lost;        // of those: their names may be other processes' now
};

struct Agreed {
  PeerList peer_list;
  std::unique_ptr<DeferredLastWill> will;
};

// Throws unless the members agree.
Agreed execute(Agreement& agreement, AgreementSetting setting);

}  // namespace ddprun::comm
