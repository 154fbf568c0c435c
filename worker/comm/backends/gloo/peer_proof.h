#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <gloo/transport/context.h>

#include "common/deadline.h"

namespace ddprun::comm {

// Verifies that the peers of a mesh's connections have read the job's store. Gloo accepts any process that connects to
// a rank's port and sends the expected sequence number. So each rank puts a nonce for each peer into the store, which
// only clients that are admitted can read, and each peer sends it back over the new connection. This is clear text: a
// process that can read or change packets on their way is not kept out.
class PeerProof {
 public:
  static constexpr std::size_t nonce_bytes = 16;

  // Throws Errc::io.
  PeerProof(int rank, int size);

  // Returns the nonce that the peer has to send to this rank, for the store.
  std::string nonce_for(int peer) const { return expected_.substr(place(peer), nonce_bytes); }
  // Records the nonce, read from the store, that this rank has to send to the peer.
  void answer(int peer, std::string_view nonce) { answers_.replace(place(peer), nonce_bytes, nonce); }
  // Sends all answers and waits for those of the peers. REQUIRES: answer() for each. Throws Errc::unreachable naming
  // the rank whose connection belongs to another process, or the failure of a connection.
  void exchange(::gloo::transport::Context& context, Deadline deadline);

 private:
  static std::size_t place(int peer) { return static_cast<std::size_t>(peer) * nonce_bytes; }

  const int rank_, size_;
  std::string expected_, answers_;
};

}  // namespace ddprun::comm
