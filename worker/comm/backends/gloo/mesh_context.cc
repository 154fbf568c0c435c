#include "worker/comm/backends/gloo/mesh_context.h"

#include <algorithm>
#include <exception>
#include <future>
#include <string_view>
#include <utility>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "common/blocked_signals.h"
#include "common/detached_thread.h"
#include "common/error.h"
#include "common/whole_milliseconds.h"
#include "worker/comm/backends/gloo/peer_proof.h"
#include "worker/comm/bootstrap/await_ranks.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

std::string address_key(const std::string& prefix, int from, int to) {
  return prefix + "address/" + std::to_string(from) + "/" + std::to_string(to);
}

// Returns the nonce and the address that the value of an address_key() consists of.
std::pair<std::string_view, std::string_view> parts_of(std::string_view value) {
  if (value.size() <= PeerProof::nonce_bytes) throw make_error(Errc::protocol, "an address of {} bytes", value.size());
  return {value.substr(0, PeerProof::nonce_bytes), value.substr(PeerProof::nonce_bytes)};
}

// A connection to a process that has died is refused within a moment.
constexpr milliseconds connecting_timeout{200};
constexpr std::size_t max_connecting_threads = 8;
constexpr milliseconds unanswered_timeout = std::chrono::minutes(10);

}  // namespace

MeshContext::~MeshContext() {
  if (!wakeups_) return;
  const LoopWakeups::Frequent frequent(*wakeups_);
  if (!loop_.await_idle(connecting_timeout)) {
    destroy_later();
    return;
  }
  interruptible_.reset();
  transportContext_.reset();
  device_.reset();
}

// A connection to a host that does not answer is given up by the kernel after minutes.
void MeshContext::destroy_later() {
  transportContext_.reset();
  start_detached_thread([context = std::move(interruptible_), device = std::move(device_), loop = loop_]() mutable {
    loop.await_idle(unanswered_timeout);
    context.reset();
    device.reset();
  });
}

void MeshContext::connect(GlooDevice device, Store& store, const std::string& prefix, Deadline deadline) {
  wakeups_.emplace(*device.gloo);
  loop_ = device.loop;
  device_ = std::move(device.gloo);
  interruptible_ = std::make_shared<InterruptibleContext>(device_->createContext(rank, size));
  interruptible_->inner().setTimeout(whole_milliseconds(deadline));
  transportContext_ = interruptible_;
  setTimeout(whole_milliseconds(deadline));

  PeerProof proof(rank, size);
  std::vector<Store::KeyValue> own;
  std::vector<RankKey> peers;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto bytes = transportContext_->createPair(peer)->address().bytes();
    own.emplace_back(address_key(prefix, rank, peer), proof.nonce_for(peer) + std::string(bytes.begin(), bytes.end()));
    peers.push_back({peer, address_key(prefix, peer, rank)});
  }
  has_pairs_ = true;
  store.multi_set(own, deadline);
  const auto addresses = await_ranks(store, peers, size, interrupted_, deadline);
  const LoopWakeups::Frequent frequent(*wakeups_);
  std::vector<PeerAddress> others;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto [nonce, address] = parts_of(addresses[i]);
    proof.answer(peers[i].rank, nonce);
    others.push_back({peers[i].rank, std::vector<char>(address.begin(), address.end())});
  }
  connect_all(others);
  proof.exchange(*interruptible_, deadline);
}

// Gloo's call waits for one connection, so that those to other hosts take a round trip each: threads share them. This
// one does the share of a thread that cannot be started.
void MeshContext::connect_all(const std::vector<PeerAddress>& others) {
  const auto threads = std::min(others.size(), max_connecting_threads);
  std::vector<std::future<void>> shares;
  {
    const BlockedSignals blocked;
    for (std::size_t share = 1; share < threads; ++share)
      shares.push_back(std::async(std::launch::async | std::launch::deferred,
                                  [&, share] { connect_share(others, share, threads); }));
  }
  std::exception_ptr failure;
  const auto note_failure = [&](auto connect) {
    try {
      connect();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  note_failure([&] { connect_share(others, 0, threads); });
  for (auto& share : shares) note_failure([&] { share.get(); });
  if (failure) std::rethrow_exception(failure);
}

void MeshContext::connect_share(const std::vector<PeerAddress>& others, std::size_t first, std::size_t stride) {
  for (auto i = first; i < others.size(); i += stride) {
    if (interrupted_) close_pairs();  // interrupt() may have been called before the pairs existed
    try {
      getPair(others[i].rank)->connect(others[i].address);
    } catch (const std::exception& error) {
      throw make_error(Errc::unreachable, "cannot connect to rank {}: {}", others[i].rank, error.what());
    }
  }
}

void MeshContext::interrupt() noexcept {
  interrupted_ = true;
  if (has_pairs_) close_pairs();
}

// Aborts the waits first, so that they return at once, and then fails the connections, which ends a connect() in
// progress and notifies the peers. Gloo has no call for the latter, but a wait that times out, here for a message that
// no rank sends, fails every pair of its context.
void MeshContext::close_pairs() noexcept {
  const LoopWakeups::Frequent frequent(*wakeups_);
  try {
    interruptible_->interrupt();
    char nothing = 0;
    interruptible_->inner().createUnboundBuffer(&nothing, sizeof(nothing))->waitRecv(nullptr, milliseconds(1));
  } catch (const std::exception&) {
    // The timeout is intended.
  }
  interruptible_->close_pairs();
}

}  // namespace ddprun::comm
