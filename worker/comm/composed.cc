#include "ddprun/worker/comm/composed.h"

#include <vector>

#include "ddprun/worker/comm/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// The factor goes into the output where that is the input too, else into a copy: others' input is only read.
void carry_out_premultiplied(Transport& transport, Collective collective, int rank) {
  const auto& operation = collective.operation;
  const bool in_place =
      operation.kind == OpKind::allreduce || (operation.kind == OpKind::reduce && operation.peer == rank);
  std::vector<std::byte> copy(in_place ? 0 : collective.input.bytes());
  void* const values = in_place ? collective.output.data : copy.data();
  prepare_reduction(operation.factor, collective.input, values);
  collective.input.data = values;
  collective.operation.op = ReduceOp::sum;
  transport.carry_out(collective);
}

}  // namespace

void carry_out_on(Transport& transport, const Collective& collective, int rank) {
  if (collective.operation.reduces() && needs_preparation(collective.operation.op)) {
    carry_out_premultiplied(transport, collective, rank);
  } else {
    transport.carry_out(collective);
  }
}

}  // namespace ddprun::comm
