#pragma once

#include <string>
#include <string_view>

namespace ddprun::checkpoint {

// A JSON parser keeps one of two members of the same name, and which one is its own choice: neither is to be trusted.
// json: text that is known to be valid. Throws Errc::io naming source and the first name that an object has twice.
void check_unique_keys(std::string_view json, const std::string& source);

}  // namespace ddprun::checkpoint
