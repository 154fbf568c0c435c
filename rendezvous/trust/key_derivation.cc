#include "rendezvous/trust/key_derivation.h"

#include <string>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "common/error.h"

namespace ddprun {

AuthenticationCode authentication_code(std::span<const unsigned char> key, std::string_view message) {
  AuthenticationCode code{};
  unsigned size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  if (!::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, message.size(), code.data(), &size) ||
      size != code.size())
    throw make_error(Errc::internal, "OpenSSL cannot compute HMAC-SHA-256");
  return code;
}

Secret derive_key(std::span<const unsigned char> secret, std::string_view purpose) {
  constexpr AuthenticationCode no_salt{};
  const std::string_view input(reinterpret_cast<const char*>(secret.data()), secret.size());
  auto extracted = authentication_code(no_salt, input);
  const Secret extract(extracted);
  auto first_block = authentication_code(extract.bytes(), std::string(purpose) + '\x01');
  return Secret(first_block);
}

}  // namespace ddprun
