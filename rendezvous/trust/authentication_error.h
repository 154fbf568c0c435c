#pragma once

#include <string>

#include "common/error.h"

namespace ddprun {

// The message of a client whose server closes the connection instead of answering.
inline constexpr const char* closed_during_handshake =
    "the server closed the connection during authentication: it requires no token, or has another one";

// The peer has not proved that it knows the job's token, or has refused this process because it could not. what() says
// which, without the peer's address.
class AuthenticationError : public Error {
 public:
  explicit AuthenticationError(const std::string& text) : Error(Errc::protocol, text) {}
};

}  // namespace ddprun
