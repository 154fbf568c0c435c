#include "rendezvous/trust/mac_key.h"

#include <array>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "common/error.h"

namespace ddprun {
namespace {

constexpr const char* hash_name = "SHA256";

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

void require_crypto(bool ok, const char* what) {
  if (!ok) throw make_error(Errc::internal, "OpenSSL cannot {}", what);
}

EVP_MAC_CTX* context_for(const Secret& key) {
  const std::unique_ptr<EVP_MAC, void (*)(EVP_MAC*)> hmac(::EVP_MAC_fetch(nullptr, "HMAC", nullptr), ::EVP_MAC_free);
  std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> context(::EVP_MAC_CTX_new(hmac.get()), ::EVP_MAC_CTX_free);
  std::array<char, 8> name{};
  std::string_view(hash_name).copy(name.data(), name.size() - 1);
  const std::array parameters{::OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name.data(), 0),
                              ::OSSL_PARAM_construct_end()};
  require_crypto(context && ::EVP_MAC_init(context.get(), key.bytes().data(), Secret::size, parameters.data()) == 1,
                 "prepare a key for HMAC-SHA-256");
  return context.release();
}

}  // namespace

Sha256Algorithm::Sha256Algorithm() : algorithm_(::EVP_MD_fetch(nullptr, hash_name, nullptr), ::EVP_MD_free) {
  require_crypto(algorithm_ != nullptr, "find SHA-256");
}

Sha256Algorithm::Hash Sha256Algorithm::operator()(std::string_view message) const {
  Hash hash{};
  require_crypto(::EVP_Digest(message.data(), message.size(), hash.data(), nullptr, algorithm_.get(), nullptr) == 1,
                 "compute SHA-256");
  return hash;
}

MacKey::MacKey(const Secret& key) : context_(context_for(key), ::EVP_MAC_CTX_free) {}

AuthenticationCode MacKey::code_of(std::string_view message) const {
  const std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> copy(::EVP_MAC_CTX_dup(context_.get()),
                                                                  ::EVP_MAC_CTX_free);
  AuthenticationCode code{};
  std::size_t size = 0;
  require_crypto(copy && ::EVP_MAC_update(copy.get(), bytes_of(message), message.size()) == 1 &&
                     ::EVP_MAC_final(copy.get(), code.data(), &size, code.size()) == 1 && size == code.size(),
                 "compute HMAC-SHA-256");
  return code;
}

}  // namespace ddprun
