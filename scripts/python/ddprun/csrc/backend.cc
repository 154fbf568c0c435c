#include "backend.h"

#include <ATen/record_function.h>
#include <algorithm>
#include <tuple>

namespace ddprun_torch {
namespace {

const at::Tensor& only(const Tensors& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "ddprun: ", operation, " takes one tensor, not ", tensors.size());
  require_dense(tensors.front(), operation);
  return tensors.front();
}

void require_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* operation) {
  require_dense(whole, operation);
  require_dense(part, operation);
  TORCH_CHECK_TYPE(whole.scalar_type() == part.scalar_type(), "ddprun: ", operation,
                   " of tensors of different types: ", whole.scalar_type(), " and ", part.scalar_type());
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, "ddprun: ", operation, " with ", size,
                    " ranks: ", whole.numel(), " elements are not ", size, " times ", part.numel());
}

void require_list(const Tensors& list, int size, const char* operation) {
  TORCH_CHECK_VALUE(static_cast<int>(list.size()) == size, "ddprun: ", operation, " needs a tensor for each of the ",
                    size, " ranks, not ", list.size());
  require_same_type(list, list.front().scalar_type(), operation);
}

}  // namespace

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

Backend::Event Backend::event_of(const Kind& kind, const Tensors& inputs) const {
  if (kind.operation == nullptr || !at::hasCallbacks()) return {};
  return {prefix_ + kind.operation, inputs};
}

WorkPtr Backend::wrap(const Kind& kind, OperationPtr operation, Tensors outputs, const Tensors& inputs) {
  if (coalesced_) coalesced_->push_back(operation);
  auto* const completer = kind.message ? &completers_->messages : &completers_->collectives;
  const Event event = event_of(kind, inputs);
  return c10::make_intrusive<GroupWork>(std::move(operation), std::shared_ptr<Completer>(completers_, completer), rank_,
                                        kind.type, event.name(), std::move(outputs), event.inputs);
}

template <class Start>
WorkPtr Backend::run(const Kind& kind, Call call, Start start) {
  if (!kind.message) ++sequence_;
  ddprun_error error;
  if (!call.async && !coalesced_) {
    const Event event = event_of(kind, call.inputs);
    auto work = c10::make_intrusive<EndedWork>(rank_, kind.type, event.name(), std::move(call.outputs), event.inputs);
    auto* const joined = membership_.group();
    {
      const BlockingCall blocking(membership_.slot());
      start(joined, nullptr, &error);
    }
    check(error);
    at::NoGradGuard no_grad;
    for (const auto& finish : call.finishes)
      if (finish) finish();
    work->end();
    return work;
  }
  auto operation = std::make_shared<Operation>();
  for (auto& memory : call.memory) operation->keep(std::move(memory));
  for (const auto& output : call.outputs) operation->keep(output);
  for (auto& finish : call.finishes) operation->then(std::move(finish));
  ddprun_work* started = nullptr;
  start(membership_.group(), &started, &error);
  check(error);
  operation->add(started);
  return wrap(kind, std::move(operation), std::move(call.outputs), call.inputs);
}

WorkPtr Backend::all_of(const Kind& kind, std::vector<WorkPtr> works, const Tensors& inputs) {
  auto operation = std::make_shared<Operation>();
  for (const auto& work : works)
    if (const auto* const part = dynamic_cast<GroupWork*>(work.get())) operation->add(part->operation());
  return wrap(kind, std::move(operation), {}, inputs);
}

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const auto& tensor = only(tensors, "broadcast");
  auto staged = staged_output(tensor, rank_ == options.rootRank);
  const auto span = span_to_move(staged.memory);
  if (rank_ == options.rootRank) staged.finish = {};
  return run({c10d::OpType::BROADCAST, "broadcast"},
             {options.asyncOp, tensors, {staged.memory}, {staged.finish}, tensors},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_broadcast(group, span, static_cast<int>(options.rootRank), limit(options.timeout), work, error);
             });
}

WorkPtr Backend::allreduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  ++sequence_;
  const Event event = event_of({c10d::OpType::ALLREDUCE, "all_reduce"}, {tensor});
  auto work =
      c10::make_intrusive<EndedWork>(rank_, c10d::OpType::ALLREDUCE, event.name(), Tensors{tensor}, event.inputs);
  const BlockingCall blocking(membership_.slot());
  membership_.call<void>("allreduce_sparse", tensor, options.reduceOp == c10d::ReduceOp::SUM, limit(options.timeout));
  work->end();
  return work;
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) return allreduce_sparse(tensors.front(), options);
  const Kind kind{c10d::OpType::ALLREDUCE, "all_reduce"};
  const auto& tensor = only(tensors, "all_reduce");
  const auto encoding = encoding_of(tensor.scalar_type(), options.reduceOp);
  auto output = encoded_output(tensor, encoding, true, size_);
  const auto span = output.encoded.span;
  return run(kind, {options.asyncOp, tensors, {output.encoded.memory}, {std::move(output.finish)}, tensors},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_allreduce(group, span, span, encoding.reduction, limit(options.timeout), work, error);
             });
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const Kind kind{c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced"};
  TORCH_CHECK_VALUE(!tensors.empty(), "ddprun: all_reduce_coalesced of no tensor");
  require_same_type(tensors, tensors.front().scalar_type(), "all_reduce_coalesced");
  const auto type = tensors.front().scalar_type();
  const auto encoding = encoding_of(type, options.reduceOp);
  Call call{options.asyncOp, tensors, {}, {}, tensors};
  std::vector<ddprun_span> spans;
  for (const auto& tensor : tensors) {
    auto output = encoded_output(tensor, encoding, true, size_);
    spans.push_back(output.encoded.span);
    call.memory.push_back(std::move(output.encoded.memory));
    call.finishes.push_back(std::move(output.finish));
  }
  return run(kind, std::move(call), [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
    ddprun_allreduce_coalesced(group, spans.data(), spans.size(), encoding.reduction, limit(options.timeout), work,
                               error);
  });
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Kind kind{c10d::OpType::REDUCE, "reduce"};
  auto tensor = only(tensors, "reduce");
  const bool root = rank_ == options.rootRank;
  const auto encoding = encoding_of(tensor.scalar_type(), options.reduceOp);
  auto output = encoded_output(tensor, encoding, true, size_);
  const auto span = output.encoded.span;
  if (!root) output.finish = {};
  return run(kind, {options.asyncOp, tensors, {output.encoded.memory}, {std::move(output.finish)}, tensors},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_reduce(group, span, span, static_cast<int>(options.rootRank), encoding.reduction,
                             limit(options.timeout), work, error);
             });
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return allgather_as({c10d::OpType::ALLGATHER, "all_gather"}, outputs, inputs, options);
}

WorkPtr Backend::allgather_as(const Kind& kind, std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) {
  const auto& input = only(inputs, "all_gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "ddprun: all_gather takes one list of outputs");
  auto& list = outputs.front();
  require_list(list, size_, "all_gather");
  TORCH_CHECK_TYPE(list.front().scalar_type() == input.scalar_type(), "ddprun: all_gather of ", input.scalar_type(),
                   " into ", list.front().scalar_type());
  TORCH_CHECK_VALUE(list[rank_].numel() == input.numel(), "ddprun: all_gather: this rank's input has ", input.numel(),
                    " elements, its place in the output ", list[rank_].numel());
  const auto own = input.contiguous();
  auto output = flat_output(list);
  const auto counts = equal_sizes(list) ? std::vector<std::size_t>{} : counts_of(list);
  return run(kind, {options.asyncOp, list, {own, output.memory}, {std::move(output.finish)}, inputs},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_allgather(group, span_to_move(own), span_to_move(output.memory),
                                counts.empty() ? nullptr : counts.data(), limit(options.timeout), work, error);
             });
}

WorkPtr Backend::all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  require_parts(output, input, size_, "all_gather_into_tensor");
  const auto own = input.contiguous();
  auto staged = staged_output(output, false);
  return run({c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor"},
             {options.asyncOp, {output}, {own, staged.memory}, {std::move(staged.finish)}, {input}},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_allgather(group, span_to_move(own), span_to_move(staged.memory), nullptr, limit(options.timeout),
                                work, error);
             });
}

// outputs[r][i] gets rank r's inputs[i].
WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == size_, "ddprun: all_gather_coalesced needs a list for each of ",
                    size_, " ranks, not ", outputs.size());
  c10d::AllgatherOptions each = options;
  each.asyncOp = true;
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensors> of_input(1);
    for (const auto& of_rank : outputs) of_input.front().push_back(of_rank.at(i));
    Tensors input{inputs[i]};
    works.push_back(allgather_as({c10d::OpType::ALLGATHER, nullptr}, of_input, input, each));
  }
  auto work = all_of({c10d::OpType::ALLGATHER_COALESCED, "all_gather_coalesced"}, std::move(works), inputs);
  if (!options.asyncOp) work->wait();
  return work;
}

WorkPtr Backend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "ddprun: ", outputs.size(), " outputs for ", inputs.size(),
                    " inputs");
  Call call{options.asyncOp, outputs, {}, {}, inputs};
  std::vector<ddprun_span> from, to;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_parts(outputs[i], inputs[i], size_, "all_gather_into_tensor_coalesced");
    const auto own = inputs[i].contiguous();
    auto staged = staged_output(outputs[i], false);
    from.push_back(span_to_move(own));
    to.push_back(span_to_move(staged.memory));
    call.memory.push_back(own);
    call.memory.push_back(std::move(staged.memory));
    call.finishes.push_back(std::move(staged.finish));
  }
  return run({c10d::OpType::COALESCED, "all_gather_into_tensor_coalesced"}, std::move(call),
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_allgather_coalesced(group, from.data(), to.data(), from.size(), limit(options.timeout), work,
                                          error);
             });
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const auto& input = only(inputs, "gather");
  const auto own = input.contiguous();
  const bool root = rank_ == options.rootRank;
  TORCH_CHECK_VALUE(outputs.size() == (root ? 1U : 0U),
                    "ddprun: gather takes a list of outputs at its root, and none elsewhere");
  Tensors list;
  Staged output;
  if (root) {
    list = outputs.front();
    require_list(list, size_, "gather");
    require_same_type(list, input.scalar_type(), "gather");
    TORCH_CHECK_VALUE(equal_sizes(list) && list.front().numel() == input.numel(),
                      "ddprun: gather needs tensors of the same size");
    output = flat_output(list);
  }
  const auto from = span_to_move(own);
  const auto to = root ? span_to_move(output.memory) : ddprun_span{nullptr, 0, from.dtype};
  return run({c10d::OpType::GATHER, "gather"},
             {options.asyncOp, list, {own, output.memory}, {std::move(output.finish)}, inputs},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_gather(group, from, to, nullptr, static_cast<int>(options.rootRank), limit(options.timeout), work,
                             error);
             });
}

WorkPtr Backend::gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) {
  const bool root = rank_ == options.rootRank;
  require_dense(input, "gather_single");
  if (root) require_parts(output, input, size_, "gather_single");
  const auto own = input.contiguous();
  Staged staged;
  if (root) staged = staged_output(output, false);
  const auto from = span_to_move(own);
  const auto to = root ? span_to_move(staged.memory) : ddprun_span{nullptr, 0, from.dtype};
  return run(
      {c10d::OpType::GATHER, "gather_single"},
      {options.asyncOp, root ? Tensors{output} : Tensors{}, {own, staged.memory}, {std::move(staged.finish)}, {input}},
      [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
        ddprun_gather(group, from, to, nullptr, static_cast<int>(options.rootRank), limit(options.timeout), work,
                      error);
      });
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const auto& output = only(outputs, "scatter");
  const bool root = rank_ == options.rootRank;
  TORCH_CHECK_VALUE(inputs.size() == (root ? 1U : 0U),
                    "ddprun: scatter takes a list of inputs at its root, and none elsewhere");
  at::Tensor flat;
  if (root) {
    const auto& list = inputs.front();
    require_list(list, size_, "scatter");
    require_same_type(list, output.scalar_type(), "scatter");
    TORCH_CHECK_VALUE(equal_sizes(list) && list.front().numel() == output.numel(),
                      "ddprun: scatter needs tensors of the same size");
    flat = flat_input(list);
  }
  auto staged = staged_output(output, false);
  const auto to = span_to_move(staged.memory);
  const auto from = root ? span_to_move(flat) : ddprun_span{nullptr, 0, to.dtype};
  Call call{options.asyncOp, outputs, {flat, staged.memory}, {std::move(staged.finish)}};
  if (root) {
    call.memory.insert(call.memory.end(), inputs.front().begin(), inputs.front().end());
    call.inputs = inputs.front();
  }
  return run({c10d::OpType::SCATTER, "scatter"}, std::move(call),
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_scatter(group, from, nullptr, to, static_cast<int>(options.rootRank), limit(options.timeout),
                              work, error);
             });
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  auto output = only(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1, "ddprun: reduce_scatter takes one list of inputs");
  const auto& list = inputs.front();
  require_list(list, size_, "reduce_scatter");
  require_same_type(list, output.scalar_type(), "reduce_scatter");
  TORCH_CHECK_VALUE(list[rank_].numel() == output.numel(), "ddprun: reduce_scatter: this rank's input has ",
                    list[rank_].numel(), " elements, its output ", output.numel());
  const auto encoding = encoding_of(output.scalar_type(), options.reduceOp);
  const auto input = encoded_input(flat_input(list), encoding);
  auto result = encoded_output(output, encoding, false, size_);
  std::vector<std::size_t> counts;
  if (!equal_sizes(list)) {
    counts = counts_of(list);
    for (auto& count : counts) count = count * input.span.count / std::max<std::size_t>(1, total(list));
  }
  Call call{options.asyncOp, outputs, {input.memory, result.encoded.memory}, {std::move(result.finish)}, list};
  call.memory.insert(call.memory.end(), list.begin(), list.end());
  return run({c10d::OpType::REDUCE_SCATTER, "reduce_scatter"}, std::move(call),
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_reduce_scatter(group, input.span, result.encoded.span, counts.empty() ? nullptr : counts.data(),
                                     encoding.reduction, limit(options.timeout), work, error);
             });
}

WorkPtr Backend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                       const c10d::ReduceScatterOptions& options) {
  require_parts(input, output, size_, "reduce_scatter_tensor");
  const auto encoding = encoding_of(output.scalar_type(), options.reduceOp);
  const auto from = encoded_input(input, encoding);
  auto result = encoded_output(output, encoding, false, size_);
  return run({c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor"},
             {options.asyncOp, {output}, {from.memory, result.encoded.memory}, {std::move(result.finish)}, {input}},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_reduce_scatter(group, from.span, result.encoded.span, nullptr, encoding.reduction,
                                     limit(options.timeout), work, error);
             });
}

WorkPtr Backend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), "ddprun: ", outputs.size(), " outputs for ",
                    inputs.size(), " inputs");
  require_same_type(inputs, outputs.front().scalar_type(), "reduce_scatter_tensor_coalesced");
  const auto encoding = encoding_of(outputs.front().scalar_type(), options.reduceOp);
  Call call{options.asyncOp, outputs, {}, {}, inputs};
  std::vector<ddprun_span> from, to;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_parts(inputs[i], outputs[i], size_, "reduce_scatter_tensor_coalesced");
    auto input = encoded_input(inputs[i], encoding);
    auto result = encoded_output(outputs[i], encoding, false, size_);
    from.push_back(input.span);
    to.push_back(result.encoded.span);
    call.memory.push_back(std::move(input.memory));
    call.memory.push_back(std::move(result.encoded.memory));
    call.finishes.push_back(std::move(result.finish));
  }
  return run({c10d::OpType::COALESCED, "reduce_scatter_tensor_coalesced"}, std::move(call),
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_reduce_scatter_coalesced(group, from.data(), to.data(), from.size(), encoding.reduction,
                                               limit(options.timeout), work, error);
             });
}

namespace {

// Splits are rows of the first dimension; without splits the parts are equal.
std::vector<std::size_t> counts_of_splits(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int size,
                                          const char* which) {
  if (splits.empty()) {
    TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % size == 0,
                      "ddprun: all_to_all_single: the first dimension of the ", which, " does not divide into ", size,
                      " equal parts");
    return std::vector<std::size_t>(size, tensor.numel() / size * units_of(tensor));
  }
  TORCH_CHECK_VALUE(static_cast<int>(splits.size()) == size, "ddprun: all_to_all_single: ", splits.size(), " ", which,
                    " splits for ", size, " ranks");
  std::int64_t rows = 0;
  for (const auto split : splits) rows += split;
  TORCH_CHECK_VALUE(tensor.dim() > 0 && rows == tensor.size(0), "ddprun: all_to_all_single: the ", which,
                    " splits add up to ", rows, " rows, not to those of the tensor");
  const auto row = tensor.size(0) ? tensor.numel() / tensor.size(0) * units_of(tensor) : 0;
  std::vector<std::size_t> counts;
  for (const auto split : splits) counts.push_back(split * row);
  return counts;
}

}  // namespace

WorkPtr Backend::all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                                   std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  require_dense(output, "all_to_all_single");
  require_dense(input, "all_to_all_single");
  TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(),
                   "ddprun: all_to_all_single of tensors of different types");
  const bool equal = output_splits.empty() && input_splits.empty();
  const auto input_counts = counts_of_splits(input, input_splits, size_, "input");
  const auto output_counts = counts_of_splits(output, output_splits, size_, "output");
  const auto own = input.contiguous();
  auto staged = staged_output(output, false);
  return run({c10d::OpType::ALLTOALL_BASE, "all_to_all_single"},
             {options.asyncOp, {output}, {own, staged.memory}, {std::move(staged.finish)}, {input}},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_all_to_all(group, span_to_move(own), equal ? nullptr : input_counts.data(),
                                 span_to_move(staged.memory), equal ? nullptr : output_counts.data(),
                                 limit(options.timeout), work, error);
             });
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  require_list(outputs, size_, "all_to_all");
  require_list(inputs, size_, "all_to_all");
  require_same_type(inputs, outputs.front().scalar_type(), "all_to_all");
  const auto flat = flat_input(inputs);
  auto output = flat_output(outputs);
  const auto input_counts = counts_of(inputs), output_counts = counts_of(outputs);
  Call call{options.asyncOp, outputs, inputs, {std::move(output.finish)}, inputs};
  call.memory.push_back(flat);
  call.memory.push_back(output.memory);
  return run({c10d::OpType::ALLTOALL, "all_to_all"}, std::move(call),
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_all_to_all(group, span_to_move(flat), input_counts.data(), span_to_move(output.memory),
                                 output_counts.data(), limit(options.timeout), work, error);
             });
}

WorkPtr Backend::send(Tensors& tensors, int destination, int tag) {
  const auto own = only(tensors, "send").contiguous();
  return run({c10d::OpType::SEND, "send", true}, {true, tensors, {own}, {}, tensors},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_send(group, span_to_move(own), destination, tag, limit(options_->timeout), work, error);
             });
}

WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
  auto staged = staged_output(only(tensors, "recv"), false);
  const bool any = source < 0;
  return run({any ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV, any ? "recvAnySource" : "recv", true},
             {true, tensors, {staged.memory}, {std::move(staged.finish)}, tensors},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_recv(group, span_to_move(staged.memory), source, tag, limit(options_->timeout), work, error);
             });
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return recv(tensors, -1, tag);
}

WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  return run({c10d::OpType::BARRIER, "barrier"}, {options.asyncOp, {}, {}, {}, {}},
             [&](ddprun_group* group, ddprun_work** work, ddprun_error* error) {
               ddprun_barrier(group, limit(options.timeout), work, error);
             });
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
  auto operation = std::make_shared<Operation>();
  for (auto& part : parts) operation->add(std::move(part));
  return wrap({c10d::OpType::COALESCED, "coalesced"}, std::move(operation), {}, {});
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
  auto work = c10::make_intrusive<EndedWork>(rank_, c10d::OpType::UNKNOWN, nullptr, Tensors{}, std::nullopt);
  work->end();
  return work;
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  ddprun_error error;
  auto* const memory =
      ddprun_memory_allocate(membership_.group(), std::max<long>(size, 1) * options.dtype().itemsize(), &error);
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
