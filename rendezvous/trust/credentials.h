#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "rendezvous/trust/client_hello.h"
#include "rendezvous/trust/secret.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun {

// The token of a job, and the keys that are derived from it for connections to the job's store servers.
//
// Ownership: owns the token; outlives the handshakes and channels that are made with it. Threads: any. Errors: the
// functions that make a context throw Errc::internal if OpenSSL fails.
class Credentials {
 public:
  // With clear, connections are authenticated and not encrypted (challenge.h).
  enum class Transport { tls, clear };

  Credentials(Secret token, std::string job, Transport transport = Transport::tls);

  const Secret& token() const { return token_; }  // for those who pass it on
  const std::string& job() const { return job_; }
  Transport transport() const { return transport_; }

  // The context is made at the first use.
  const TlsContext& tls_client() const;
  const TlsContext& tls_server() const;
  const Secret& challenge_key() const { return challenge_key_; }
  const HelloJudge& hello_judge() const { return hello_judge_; }

 private:
  const TlsContext& context(std::unique_ptr<TlsContext>& place, TlsContext::Role role) const;

  const Secret token_;
  const std::string job_;
  const Transport transport_;
  const Secret challenge_key_;
  const HelloJudge hello_judge_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::unique_ptr<TlsContext> client_, server_;
};

}  // namespace ddprun
