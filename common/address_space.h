#pragma once

#include <cstddef>
#include <memory>

namespace ddprun {

// Reserves readable and writable addresses for so many bytes, at least one, page-aligned. They take no memory until
// they are written, and read as zero until then: far more may be reserved than the machine has. The pages that were
// written are freed with the last owner. Throws Errc::io if the system has not so many addresses for the process
// (ulimit -v, vm.overcommit_memory = 2).
std::shared_ptr<std::byte> reserve_address_space(std::size_t bytes);

}  // namespace ddprun
