#include "ddprun/worker/comm/process_group.h"

#include "ddprun/worker/comm/operation.h"

namespace ddprun {

using namespace comm;

WorkPtr ProcessGroup::allreduce(Span buffer, Reduction reduction, OpOptions options) {
  return begin({checked_allreduce(buffer, reduction), buffer, buffer, options});
}

WorkPtr ProcessGroup::reduce(Span buffer, int root, Reduction reduction, OpOptions options) {
  return begin({checked_reduce(buffer, root, reduction, size()), buffer, buffer, options});
}

WorkPtr ProcessGroup::broadcast(Span buffer, int root, OpOptions options) {
  return begin({checked_broadcast(buffer, root, size()), buffer, buffer, options});
}

WorkPtr ProcessGroup::allgather(ConstSpan input, Span output, OpOptions options) {
  return begin({checked_allgather(input, output, size()), input, output, options});
}

WorkPtr ProcessGroup::reduce_scatter(ConstSpan input, Span output, Reduction reduction, OpOptions options) {
  return begin({checked_reduce_scatter(input, output, reduction, size()), input, output, options});
}

WorkPtr ProcessGroup::barrier(OpOptions options) {
  return begin({{}, {}, {}, options});
}

WorkPtr ProcessGroup::send(ConstSpan buffer, int destination, int tag, OpOptions options) {
  return begin({checked_send(buffer, destination, tag, rank(), size()), buffer, {}, options});
}

WorkPtr ProcessGroup::recv(Span buffer, int source, int tag, OpOptions options) {
  return begin({checked_recv(buffer, source, tag, rank(), size()), {}, buffer, options});
}

WorkPtr ProcessGroup::begin(const Call& call) {
  auto work = start(call);
  if (call.options.blocking) work->wait();
  return work;
}

}  // namespace ddprun
