#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/trust/secret.h"

struct ssl_ctx_st;
struct ssl_st;

namespace ddprun {

// The settings that the TLS connections of one process and role share: only TLS 1.3 with TLS_AES_128_GCM_SHA256, a
// pre-shared key and an ephemeral key exchange (psk_dhe_ke), without certificates, tickets and early data (RFC
// 8446).
//
// Ownership: owns the key; must outlive its channels. Threads: several may make channels of one context at a time.
// Errors: the constructor throws Errc::internal if OpenSSL fails.
class TlsContext {
 public:
  enum class Role { client, server };

  // A client sends identity to name its key, at most 128 bytes of it; a server accepts any.
  TlsContext(Role role, Secret key, std::string_view identity);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  Role role() const { return role_; }

 private:
  friend class TlsChannel;
  struct Key;
  Role role_;
  std::unique_ptr<Key> key_;
  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
};

// One end of a TLS connection without a socket: the caller carries the bytes.
//
//   channel.feed(received); channel.shake_hands(); send(channel.take_output());   until shake_hands() returns true
//   channel.write(text); send(channel.take_output());   channel.feed(received); channel.read(text);
//
// Ownership: borrows the context. Threads: one at a time. Errors: see each function; after one only the destructor may
// be called, and take_output() once for the alert.
class TlsChannel {
 public:
  explicit TlsChannel(const TlsContext& context);
  ~TlsChannel();
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  // Takes bytes from the peer, in pieces of any size.
  void feed(std::string_view received);
  // Continues the handshake; returns whether it is complete, and with it that the peer knows the key. Throws
  // AuthenticationError.
  bool shake_hands();
  // Encrypts text into the output. REQUIRES: the handshake is complete. Throws Errc::protocol.
  void write(std::string_view text);
  // Appends the text that has arrived so far. REQUIRES: the handshake is complete. Throws Errc::protocol for bytes that
  // the peer did not encrypt, Errc::connection_lost once the peer has closed the channel and all text is read.
  void read(std::string& text);
  // Removes the bytes for the peer and returns them.
  std::string take_output();

 private:
  TlsContext::Role role_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
};

}  // namespace ddprun
