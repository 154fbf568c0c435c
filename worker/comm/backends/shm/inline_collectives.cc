#include "ddprun/worker/comm/backends/shm/inline_collectives.h"

#include "ddprun/worker/comm/reduce/variant.h"

namespace ddprun::comm {

void InlineCollectives::publish(const Collective& collective) {
  const auto bytes = input_bytes_of(collective.operation, ranks_, rank_);
  if (bytes > 0) kernels().copy(ring_.payload(bytes), collective.input.data, bytes);
}

void InlineCollectives::execute(const Collective& collective) {
  const auto bytes = input_bytes(collective.operation, ranks_);
  for (int r = 0; r < ranks_; ++r) inputs_[r] = ring_.payload_from(r, bytes);
  inputs_[rank_] = collective.input.data;
  inputs_.write_output(collective, rank_);
}

}  // namespace ddprun::comm
