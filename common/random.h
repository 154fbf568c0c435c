#pragma once

#include <cstddef>
#include <span>
#include <string>

// Unpredictable random numbers (getrandom(2)). Thread-safe. All throw Errc::io.
namespace ddprun {

void fill_random(std::span<unsigned char> bytes);

// Returns that number of random bytes in hexadecimal digits.
std::string random_hex(std::size_t bytes);

// Returns a seed for a generator, such as that of the pauses between attempts. std::random_device takes up to 80 us, as
// a virtual machine traps its instruction cpuid.
unsigned random_seed();

}  // namespace ddprun
