#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/trust/credentials.h"
#include "rendezvous/trust/key_derivation.h"

// Authentication without encryption (--rdzv_conf tls=off): both sides prove that they know the token, and what follows
// is clear text, which is not protected against changes on the way.
//
//   client -> server  HELLO   u8 0x90, u8 version (1), 32 bytes nonce, u8 length of the job's id, the id
//   server -> client  ANSWER  u8 version (1), 32 bytes nonce, 32 bytes code of the server
//   client -> server  PROOF   32 bytes code of the client
//
// A code is HMAC-SHA-256 over the sender's role, the version, both nonces and the job's id, so that no message can be
// used in another exchange, in another job or in the other direction.
namespace ddprun {

inline constexpr char challenge_byte = '\x90';  // first of a HELLO, no opcode of the store

using Nonce = std::array<unsigned char, 32>;
// Reads the kernel's random generator. Throws Errc::io.
Nonce random_nonce();

// The client's side. Ownership: borrows the credentials. Threads: one at a time. Errors: see feed().
class ChallengeClient {
 public:
  ChallengeClient(const Credentials& credentials, const Nonce& nonce) : credentials_(credentials), nonce_(nonce) {}

  std::string hello() const;
  // Takes bytes from the server. Returns the PROOF once the ANSWER is complete, nullopt before. Throws
  // AuthenticationError, also for bytes after the ANSWER, which a server never sends.
  std::optional<std::string> feed(std::string_view received);

 private:
  const Credentials& credentials_;
  const Nonce nonce_;
  std::string received_;
};

// The server's side. Ownership: borrows the credentials. Threads: one at a time. Errors: see feed().
class ChallengeServer {
 public:
  ChallengeServer(const Credentials& credentials, const Nonce& nonce) : credentials_(credentials), nonce_(nonce) {}

  // Takes bytes from the client and appends what has to be sent to output. Returns whether the client has proved that
  // it knows the token; rest() then has the bytes that followed. Throws AuthenticationError.
  bool feed(std::string_view received, std::string& output);
  std::string_view rest() const { return received_; }

 private:
  bool take_hello(std::string& output);

  const Credentials& credentials_;
  const Nonce nonce_;
  std::string received_;
  std::optional<Nonce> client_nonce_;  // set once a HELLO is complete
};

}  // namespace ddprun
