#include "worker/comm/process_group.h"

#include "worker/comm/operations/checked_call.h"

namespace ddprun {

using namespace comm;

namespace {

// This is a constant, since one built for each call would be written in two halves and read whole: such a load waits
// until all earlier stores, among them the announcement of the call, have left the store buffer.
const Deadline no_deadline = Deadline::never();

}  // namespace

WorkPtr ProcessGroup::allreduce(Span buffer, Reduction reduction, OpOptions options) {
  return run(checked_allreduce(buffer, buffer, reduction, options));
}

WorkPtr ProcessGroup::allreduce(ConstSpan input, Span output, Reduction reduction, OpOptions options) {
  return run(checked_allreduce(input, output, reduction, options));
}

WorkPtr ProcessGroup::reduce(Span buffer, int root, Reduction reduction, OpOptions options) {
  return run(checked_reduce(buffer, buffer, root, reduction, {rank(), size()}, options));
}

WorkPtr ProcessGroup::reduce(ConstSpan input, Span output, int root, Reduction reduction, OpOptions options) {
  return run(checked_reduce(input, output, root, reduction, {rank(), size()}, options));
}

WorkPtr ProcessGroup::broadcast(Span buffer, int root, OpOptions options) {
  return run(checked_broadcast(buffer, root, {rank(), size()}, options));
}

WorkPtr ProcessGroup::allgather(ConstSpan input, Span output, OpOptions options) {
  return run(checked_allgather(input, output, nullptr, {rank(), size()}, options));
}

WorkPtr ProcessGroup::allgatherv(ConstSpan input, Span output, const Counts& counts, OpOptions options) {
  return run(checked_allgather(input, output, &counts, {rank(), size()}, options));
}

WorkPtr ProcessGroup::reduce_scatter(ConstSpan input, Span output, Reduction reduction, OpOptions options) {
  return run(checked_reduce_scatter(input, output, nullptr, reduction, {rank(), size()}, options));
}

WorkPtr ProcessGroup::reduce_scatterv(ConstSpan input, Span output, const Counts& counts, Reduction reduction,
                                      OpOptions options) {
  return run(checked_reduce_scatter(input, output, &counts, reduction, {rank(), size()}, options));
}

WorkPtr ProcessGroup::gather(ConstSpan input, Span output, int root, OpOptions options) {
  return run(checked_gather(input, output, nullptr, root, {rank(), size()}, options));
}

WorkPtr ProcessGroup::gatherv(ConstSpan input, Span output, const Counts& counts, int root, OpOptions options) {
  return run(checked_gather(input, output, &counts, root, {rank(), size()}, options));
}

WorkPtr ProcessGroup::scatter(ConstSpan input, Span output, int root, OpOptions options) {
  return run(checked_scatter(input, output, nullptr, root, {rank(), size()}, options));
}

WorkPtr ProcessGroup::scatterv(ConstSpan input, const Counts& counts, Span output, int root, OpOptions options) {
  return run(checked_scatter(input, output, &counts, root, {rank(), size()}, options));
}

WorkPtr ProcessGroup::all_to_all(ConstSpan input, Span output, OpOptions options) {
  return run(checked_all_to_all(input, output, {rank(), size()}, options));
}

WorkPtr ProcessGroup::all_to_allv(ConstSpan input, const Counts& input_counts, Span output, const Counts& output_counts,
                                  OpOptions options) {
  return run(checked_all_to_allv(input, input_counts, output, output_counts, {rank(), size()}, options));
}

WorkPtr ProcessGroup::barrier(OpOptions options) {
  return run({.options = options});
}

WorkPtr ProcessGroup::allreduce_coalesced(const std::vector<Span>& buffers, Reduction reduction, OpOptions options) {
  return run(checked_allreduce(buffers, reduction, options));
}

WorkPtr ProcessGroup::broadcast_coalesced(const std::vector<Span>& buffers, int root, OpOptions options) {
  return run(checked_broadcast(buffers, root, {rank(), size()}, options));
}

WorkPtr ProcessGroup::allgather_coalesced(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs,
                                          OpOptions options) {
  return run(checked_allgather(inputs, outputs, {rank(), size()}, options));
}

WorkPtr ProcessGroup::reduce_scatter_coalesced(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs,
                                               Reduction reduction, OpOptions options) {
  return run(checked_reduce_scatter(inputs, outputs, reduction, {rank(), size()}, options));
}

WorkPtr ProcessGroup::send(ConstSpan buffer, int destination, int tag, OpOptions options) {
  return run(checked_send(buffer, destination, tag, {rank(), size()}, options));
}

WorkPtr ProcessGroup::recv(Span buffer, int source, int tag, OpOptions options) {
  return run(checked_recv(buffer, source, tag, {rank(), size()}, options));
}

RegisteredBuffer ProcessGroup::allocate(std::size_t bytes) {
  return plain_buffer(bytes);
}

RegisteredBuffer ProcessGroup::allocate_on(std::int32_t device, std::size_t bytes) {
  if (device == host_memory) return allocate(bytes);
  throw make_error(Errc::unsupported, "the back end {} has no memory of cuda:{}", backend(), device);
}

std::unique_ptr<ProcessGroup> ProcessGroup::make_subgroup(const std::vector<int>&, const std::string&) {
  throw make_error(Errc::unsupported, "the back end {} has no subgroups", backend());
}

WorkPtr ProcessGroup::run(const Call& call) {
  if (const auto device = call.device(); device != host_memory && !accepts(device))
    throw make_error(Errc::unsupported, "{} on memory of cuda:{}: this group, of the back end {}, takes other memory",
                     describe(call.operation), device, backend());
  if (call.options.timeout) check_timeout(call.operation, *call.options.timeout);
  auto work = start(call);
  if (call.options.blocking) work->wait(no_deadline);
  return work;
}

}  // namespace ddprun
