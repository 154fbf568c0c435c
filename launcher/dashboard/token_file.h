#pragma once

#include <filesystem>
#include <string>

namespace ddprun::dashboard {

// The token in a file that only its owner may read (mode 0600), so that a program such as Prometheus can use it, too. A
// file that does not exist is made, with a new token. Throws Errc::usage for a file that others may read, is not this
// user's, or holds no token of 16 to 128 letters and digits, and Errc::io.
std::string token_in(const std::filesystem::path& file);

}  // namespace ddprun::dashboard
