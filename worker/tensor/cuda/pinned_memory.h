#pragma once

#include <cstddef>
#include <memory>

#include "worker/tensor/cuda/cuda_device.h"

namespace ddprun::cuda {

// Allocates page-locked memory of the host. What is freed is kept for the next allocation of its size: a call of the
// driver for each batch would cost more than its copy. Thread-safe. Errors: those of api().
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

// Queues a copy from pinned memory on the compute queue and keeps the memory until the device has read it.
void copy_from_pinned(const CudaDevice& device, void* to, std::shared_ptr<void> from, std::size_t bytes);

}  // namespace ddprun::cuda
