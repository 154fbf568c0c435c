#include "ddprun/worker/comm/gloo/mesh_context.h"

#include <algorithm>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "ddprun/common/error.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

std::string address_key(const std::string& prefix, int from, int to) {
  return prefix + "address/" + std::to_string(from) + "/" + std::to_string(to);
}

milliseconds remaining(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline.remaining());
  return std::clamp(left, milliseconds(1), milliseconds(std::chrono::hours(24 * 365)));
}

}  // namespace

void MeshContext::connect(std::shared_ptr<::gloo::transport::Device> device, Store& store, const std::string& prefix,
                          Deadline deadline) {
  device_ = std::move(device);
  transportContext_ = device_->createContext(rank, size);
  transportContext_->setTimeout(remaining(deadline));
  setTimeout(remaining(deadline));

  std::vector<Store::KeyValue> own;
  std::vector<std::string> keys;
  std::vector<int> peers;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto bytes = transportContext_->createPair(peer)->address().bytes();
    own.emplace_back(address_key(prefix, rank, peer), std::string(bytes.begin(), bytes.end()));
    keys.push_back(address_key(prefix, peer, rank));
    peers.push_back(peer);
  }
  has_pairs_ = true;
  store.multi_set(own, deadline);
  await_addresses(store, keys, deadline);
  const auto addresses = store.multi_get(keys, deadline);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (interrupted_) close_pairs();  // interrupt() may have come before there were pairs
    try {
      getPair(peers[i])->connect(std::vector<char>(addresses[i].begin(), addresses[i].end()));
    } catch (const std::exception& error) {
      throw make_error(Errc::unreachable, "no connection to rank {}: {}", peers[i], error.what());
    }
  }
}

void MeshContext::await_addresses(Store& store, const std::vector<std::string>& keys, Deadline deadline) {
  while (true) {
    if (interrupted_) throw Error(Errc::aborted, "the group was interrupted while it came together");
    try {
      return store.wait(keys, earlier(deadline, Deadline::in(milliseconds(200))));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
    if (!deadline.expired()) continue;
    std::string missing;
    for (const auto& key : keys) {
      if (store.check({key}, Deadline::in(std::chrono::seconds(5)))) continue;
      const auto start = key.rfind('/', key.rfind('/') - 1) + 1;
      missing += (missing.empty() ? "" : ", ") + key.substr(start, key.rfind('/') - start);
    }
    throw make_error(Errc::timeout, "rank(s) {} of {} did not come to the group in time", missing, size);
  }
}

void MeshContext::interrupt() noexcept {
  interrupted_ = true;
  if (has_pairs_) close_pairs();
}

// Gloo has no abort. But a wait that times out, here for a buffer which nobody sends to, fails every pair of its
// context.
void MeshContext::close_pairs() noexcept {
  try {
    char nothing = 0;
    createUnboundBuffer(&nothing, sizeof(nothing))->waitRecv(nullptr, milliseconds(1));
  } catch (const std::exception&) {
    // That is the purpose.
  }
}

}  // namespace ddprun::comm
