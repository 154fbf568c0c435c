#include "worker/comm/backends/gloo/peer_proof.h"

#include <chrono>
#include <span>

#include <gloo/transport/unbound_buffer.h>

#include "common/error.h"
#include "common/random.h"
#include "common/whole_milliseconds.h"

namespace ddprun::comm {
namespace {

constexpr std::uint64_t proof_slot = std::uint64_t{0x23} << 56;  // used by no collective and no transfer

// Compares them without letting the peer measure where they begin to differ.
bool equal(std::string_view a, std::string_view b) {
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

PeerProof::PeerProof(int rank, int size) : rank_(rank), size_(size), expected_(place(size), '\0'), answers_(expected_) {
  fill_random({reinterpret_cast<unsigned char*>(expected_.data()), expected_.size()});
}

void PeerProof::exchange(::gloo::transport::Context& context, Deadline deadline) {
  std::string received(expected_.size(), '\0');
  try {
    const auto incoming = context.createUnboundBuffer(received.data(), received.size());
    const auto outgoing = context.createUnboundBuffer(answers_.data(), answers_.size());
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      incoming->recv(peer, proof_slot, place(peer), nonce_bytes);
      outgoing->send(peer, proof_slot, place(peer), nonce_bytes);
    }
    for (int i = 1; i < size_; ++i) {
      incoming->waitRecv(nullptr, whole_milliseconds(deadline));
      outgoing->waitSend(nullptr, whole_milliseconds(deadline));
    }
  } catch (const std::exception& error) {
    throw make_error(Errc::unreachable, "cannot check the connections of the ranks: {}", error.what());
  }
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !equal(std::string_view(received).substr(place(peer), nonce_bytes), nonce_for(peer)))
      throw make_error(
          Errc::unreachable,
          "the connection of rank {} is not that rank's: another process has connected to this rank's port", peer);
}

}  // namespace ddprun::comm
