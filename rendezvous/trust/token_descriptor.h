#pragma once

#include <memory>
#include <string>

#include "common/unique_fd.h"
#include "rendezvous/trust/credentials.h"

// A job's token in memory that child processes inherit: an anonymous file, sealed, so that any of them can read it any
// number of times and none can change it. The variable has only its descriptor's number.
namespace ddprun {

inline constexpr const char* token_descriptor_variable = "DDPRUN_TOKEN_FD";

// Throws Errc::io.
UniqueFd make_token_descriptor(const Credentials& credentials);

// Reads what make_token_descriptor() of the parent has made, for the job of this id; returns null for any other
// descriptor, such as one that a program in between has closed.
std::shared_ptr<const Credentials> read_token_descriptor(int descriptor, const std::string& job);

}  // namespace ddprun
