#pragma once

#include <array>
#include <span>
#include <string_view>

#include "rendezvous/trust/secret.h"

namespace ddprun {

using AuthenticationCode = std::array<unsigned char, 32>;

// HMAC-SHA-256 (RFC 2104). Throws Errc::internal if OpenSSL fails.
AuthenticationCode authentication_code(std::span<const unsigned char> key, std::string_view message);

// The first 32 bytes of HKDF with SHA-256 and without a salt (RFC 5869). purpose is its "info": keys for different
// purposes reveal nothing about each other. Throws Errc::internal if OpenSSL fails.
Secret derive_key(std::span<const unsigned char> secret, std::string_view purpose);

}  // namespace ddprun
