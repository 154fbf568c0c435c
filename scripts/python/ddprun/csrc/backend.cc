#include "backend.h"

#include <ATen/record_function.h>
#include <algorithm>
#include <tuple>

namespace ddprun_torch {

Backend::Backend(const pybind11::object& membership, const std::shared_ptr<InterpreterGate>& gate)
    : c10d::Backend(membership.attr("rank").cast<int>(), membership.attr("size").cast<int>()),
      options_(membership.attr("options").cast<c10::intrusive_ptr<Options>>()),
      prefix_(membership.attr("settings").attr("name").cast<std::string>() + ":"),
      handle_for_reconfigure_(membership.attr("handle_for_reconfigure").cast<std::string>()),
      membership_(membership, gate),
      completers_(std::make_shared<Completers>(gate)) {}

Backend::~Backend() {
  if (!membership_.close()) new std::shared_ptr<Completers>(std::move(completers_));
}

Backend::Event Backend::event_of(const char* title, at::TensorList inputs) const {
  if (!at::hasCallbacks()) return {};
  return {prefix_ + title, inputs.vec()};
}

Backend::Event Backend::event_of(const Call& call) const {
  if (call.is_part) return {};
  const bool from_any = call.type == OpType::RECVANYSOURCE;
  return event_of(from_any ? "recvAnySource" : ddprun_operation_name(call.operation), call.shown);
}

WorkPtr Backend::wrap(OpType type, OperationPtr operation, const Event& event, Tensors results, Completer& completer) {
  if (coalesced_) coalesced_->push_back(operation);
  return c10::make_intrusive<GroupWork>(std::move(operation), std::shared_ptr<Completer>(completers_, &completer),
                                        rank_, type, event.name(), std::move(results), event.inputs);
}

WorkPtr Backend::run(Call&& call) {
  if (!call.is_message()) ++sequence_;
  const auto start = [&](ddprun_group* group, ddprun_work** work) {
    ddprun_error error;
    ddprun_tensor_operation(group, call.operation, call.inputs.data(), call.inputs.size(), call.outputs.data(),
                            call.outputs.size(), &call.arguments, limit(call.timeout), work, &error);
    check(error);
  };
  if (!call.async && !coalesced_) {
    const Event event = event_of(call);
    auto work = c10::make_intrusive<EndedWork>(rank_, call.type, event.name(), std::move(call.results), event.inputs);
    auto* const group = membership_.group();
    {
      const BlockingCall blocking(membership_.slot());
      start(group, nullptr);
    }
    at::NoGradGuard no_grad;
    for (const auto& finish : call.finishes) finish();
    work->end();
    return work;
  }
  auto operation = std::make_shared<Operation>();
  for (auto& memory : call.memory) operation->keep(std::move(memory));
  for (const auto& result : call.results) operation->keep(result);
  for (auto& finish : call.finishes) operation->then(std::move(finish));
  ddprun_work* started = nullptr;
  start(membership_.group(), &started);
  operation->add(started);
  auto& completer = call.is_message() ? completers_->messages : completers_->collectives;
  return wrap(call.type, std::move(operation), event_of(call), std::move(call.results), completer);
}

WorkPtr Backend::whole_of(OpType type, std::vector<OperationPtr> parts, const char* title, at::TensorList inputs) {
  auto operation = std::make_shared<Operation>();
  for (auto& part : parts) operation->add(std::move(part));
  return wrap(type, std::move(operation), event_of(title, inputs), {}, completers_->collectives);
}

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Call call(OpType::BROADCAST, DDPRUN_BROADCAST, options);
  const bool root = rank_ == options.rootRank;
  call.arguments.peer = static_cast<int>(options.rootRank);
  call.change(tensors, root, !root);
  return run(std::move(call));
}

WorkPtr Backend::allreduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  ++sequence_;
  const Event event = event_of("all_reduce", tensor);
  auto work = c10::make_intrusive<EndedWork>(rank_, OpType::ALLREDUCE, event.name(), Tensors{tensor}, event.inputs);
  const BlockingCall blocking(membership_.slot());
  membership_.call<void>("allreduce_sparse", tensor, options.reduceOp == c10d::ReduceOp::SUM, limit(options.timeout));
  work->end();
  return work;
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) return allreduce_sparse(tensors.front(), options);
  Call call(OpType::ALLREDUCE, DDPRUN_ALL_REDUCE, options);
  call.reduce_by(options.reduceOp);
  call.change(tensors, true, true);
  return run(std::move(call));
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Call call(OpType::ALLREDUCE_COALESCED, DDPRUN_ALL_REDUCE_COALESCED, options);
  call.reduce_by(options.reduceOp);
  call.change(tensors, true, true);
  return run(std::move(call));
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call(OpType::REDUCE, DDPRUN_REDUCE, options);
  call.arguments.peer = static_cast<int>(options.rootRank);
  call.reduce_by(options.reduceOp);
  call.change(tensors, true, rank_ == options.rootRank);
  return run(std::move(call));
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  Call call(OpType::ALLGATHER, DDPRUN_ALL_GATHER, options);
  call.read(inputs);
  call.write_list(outputs);
  return run(std::move(call));
}

WorkPtr Backend::all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Call call(OpType::_ALLGATHER_BASE, DDPRUN_ALL_GATHER_INTO_TENSOR, options);
  call.read(input);
  call.write(output);
  return run(std::move(call));
}

// outputs[r][i] gets rank r's inputs[i].
WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == size_, "ddprun: all_gather_coalesced needs a list for each of ",
                    size_, " ranks, not ", outputs.size());
  std::vector<OperationPtr> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_input;
    for (const auto& of_rank : outputs) of_input.push_back(of_rank.at(i));
    Call call(OpType::ALLGATHER, DDPRUN_ALL_GATHER, options);
    call.async = call.is_part = true;
    call.arguments.lists = 1;
    call.read(inputs[i]);
    call.write(of_input);
    parts.push_back(dynamic_cast<GroupWork&>(*run(std::move(call))).operation());
  }
  auto work = whole_of(OpType::ALLGATHER_COALESCED, std::move(parts), "all_gather_coalesced", inputs);
  if (!options.asyncOp) work->wait();
  return work;
}

WorkPtr Backend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  Call call(OpType::COALESCED, DDPRUN_ALL_GATHER_INTO_TENSOR_COALESCED, options);
  call.read(inputs);
  call.write(outputs);
  return run(std::move(call));
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Call call(OpType::GATHER, DDPRUN_GATHER, options);
  call.arguments.peer = static_cast<int>(options.rootRank);
  call.read(inputs);
  call.write_list(outputs);
  return run(std::move(call));
}

WorkPtr Backend::gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) {
  Call call(OpType::GATHER, DDPRUN_GATHER_SINGLE, options);
  call.arguments.peer = static_cast<int>(options.rootRank);
  call.read(input);
  if (rank_ == options.rootRank) call.write(output);
  return run(std::move(call));
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  Call call(OpType::SCATTER, DDPRUN_SCATTER, options);
  call.arguments.peer = static_cast<int>(options.rootRank);
  call.read_list(inputs);
  call.write(outputs);
  return run(std::move(call));
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  Call call(OpType::REDUCE_SCATTER, DDPRUN_REDUCE_SCATTER, options);
  call.reduce_by(options.reduceOp);
  call.read_list(inputs);
  call.write(outputs);
  return run(std::move(call));
}

WorkPtr Backend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                       const c10d::ReduceScatterOptions& options) {
  Call call(OpType::_REDUCE_SCATTER_BASE, DDPRUN_REDUCE_SCATTER_TENSOR, options);
  call.reduce_by(options.reduceOp);
  call.read(input);
  call.write(output);
  return run(std::move(call));
}

WorkPtr Backend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  Call call(OpType::COALESCED, DDPRUN_REDUCE_SCATTER_TENSOR_COALESCED, options);
  call.reduce_by(options.reduceOp);
  call.read(inputs);
  call.write(outputs);
  return run(std::move(call));
}

WorkPtr Backend::all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                                   std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  Call call(OpType::ALLTOALL_BASE, DDPRUN_ALL_TO_ALL_SINGLE, options);
  call.arguments.input_splits = input_splits.data();
  call.arguments.input_split_count = input_splits.size();
  call.arguments.output_splits = output_splits.data();
  call.arguments.output_split_count = output_splits.size();
  call.read(input);
  call.write(output);
  return run(std::move(call));
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Call call(OpType::ALLTOALL, DDPRUN_ALL_TO_ALL, options);
  call.read(inputs);
  call.write(outputs);
  return run(std::move(call));
}

WorkPtr Backend::send(Tensors& tensors, int destination, int tag) {
  Call call(OpType::SEND, DDPRUN_SEND);
  call.arguments.peer = destination;
  call.arguments.tag = tag;
  call.read(tensors);
  call.results = tensors;
  return run(std::move(call));
}

WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
  Call call(source < 0 ? OpType::RECVANYSOURCE : OpType::RECV, DDPRUN_RECV);
  call.arguments.peer = source;
  call.arguments.tag = tag;
  call.change(tensors, false, true);
  return run(std::move(call));
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return recv(tensors, -1, tag);
}

WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  return run(Call(OpType::BARRIER, DDPRUN_BARRIER, options));
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  membership_.call<void>("monitored_barrier", options.timeout, wait_all_ranks);
}

void Backend::startCoalescing() {
  TORCH_CHECK(!coalesced_, "ddprun: coalescing has begun already");
  coalesced_.emplace();
}

WorkPtr Backend::endCoalescing() {
  TORCH_CHECK(coalesced_, "ddprun: coalescing has not begun");
  auto parts = std::move(*coalesced_);
  coalesced_.reset();
  return whole_of(OpType::COALESCED, std::move(parts), "coalesced", {});
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  return membership_.call<c10::intrusive_ptr<Backend>>("split", store, ranks, options);
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<Options>& options, const int& rank,
                                                 const int& size) {
  return membership_.call<c10::intrusive_ptr<Backend>>("merge", store, options, rank, size);
}

WorkPtr Backend::reconfigure(const c10d::ReconfigureOptions& options) {
  std::tie(rank_, size_) = membership_.call<std::pair<int, int>>("reconfigure", options);
  auto work = c10::make_intrusive<EndedWork>(rank_, OpType::UNKNOWN, nullptr, Tensors{}, std::nullopt);
  work->end();
  return work;
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  ddprun_error error;
  const auto bytes = std::max<long>(size, 1) * options.dtype().itemsize();
  auto* const memory = ddprun_memory_allocate(membership_.group(), bytes, &error);
  check(error);
  return at::from_blob(
      ddprun_memory_data(memory), {size}, [memory](void*) { ddprun_memory_free(memory); }, options);
}

c10d::ErrorType Backend::getError() {
  return membership_.call<c10d::ErrorType>("error");
}

void Backend::abort() {
  membership_.call<void>("abort");
}

void Backend::shutdown() {
  membership_.call<void>("leave");
}

}  // namespace ddprun_torch
