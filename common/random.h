#pragma once

#include <cstddef>
#include <span>
#include <string>

// Unpredictable random numbers (getrandom(2)). Thread-safe. Both throw Errc::io.
namespace ddprun {

void fill_random(std::span<unsigned char> bytes);

// Returns that number of random bytes in hexadecimal digits.
std::string random_hex(std::size_t bytes);

}  // namespace ddprun
