#pragma once

#include <memory>
#include <string_view>

#include "rendezvous/trust/key_derivation.h"
#include "rendezvous/trust/secret.h"

struct evp_mac_ctx_st;
struct evp_md_st;

namespace ddprun {

// SHA-256, looked up once: OpenSSL looks an algorithm up by its name at each use otherwise.
//
// Ownership: owns OpenSSL's object. Threads: any. Errors: both functions throw Errc::internal if OpenSSL fails.
class Sha256Algorithm {
 public:
  using Hash = AuthenticationCode;

  Sha256Algorithm();
  Hash operator()(std::string_view message) const;

 private:
  std::unique_ptr<evp_md_st, void (*)(evp_md_st*)> algorithm_;
};

// A key that is prepared once for many messages: authentication_code() of each.
//
// Ownership: owns OpenSSL's object, which has what it derived from the key. Threads: any. Errors: both functions throw
// Errc::internal if OpenSSL fails.
class MacKey {
 public:
  explicit MacKey(const Secret& key);
  AuthenticationCode code_of(std::string_view message) const;

 private:
  std::unique_ptr<evp_mac_ctx_st, void (*)(evp_mac_ctx_st*)> context_;
};

}  // namespace ddprun
