#include "tests/support/reference_collectives.h"

#include <cstring>

#include "common/error.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::testing {
namespace {

using namespace comm;

using Bytes = std::vector<std::byte>;

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

Bytes bytes_of(ConstSpan span) {
  const auto* data = static_cast<const std::byte*>(span.data);
  return {data, data + span.bytes()};
}

void copy_to(const Bytes& bytes, Span to) {
  if (!bytes.empty()) std::memcpy(to.data, bytes.data(), bytes.size());
}

DType combined_type(const Operation& operation) {
  return needs_preparation(operation.op) ? prepared_type(operation.dtype) : operation.dtype;
}

// A rank's input, prepared for the reduction.
Bytes prepared(const Operation& operation, ConstSpan input) {
  if (!needs_preparation(operation.op)) return bytes_of(input);
  Bytes values(input.count * size_of(combined_type(operation)));
  prepare_reduction(operation.factor, input, values.data());
  return values;
}

// Reduces part(call) over all calls.
template <class Part>
Bytes reduced(const std::vector<Call>& calls, Part part) {
  const auto& operation = calls[0].operation;
  const std::size_t count = ConstSpan(part(calls[0])).count;
  auto result = prepared(operation, part(calls[0]));
  for (std::size_t r = 1; r < calls.size(); ++r) {
    const auto values = prepared(calls[r].operation, part(calls[r]));
    reduce(operation.op, combined_type(operation), result.data(), result.data(), values.data(), count);
  }
  if (needs_preparation(operation.op)) {
    Bytes rounded(count * size_of(operation.dtype));
    finish_prepared(result.data(), {rounded.data(), count, operation.dtype});
    return rounded;
  }
  finish_reduction(operation.op, {result.data(), count, operation.dtype}, static_cast<int>(calls.size()));
  return result;
}

// All inputs are read before an output is written: they may be the same memory.
void allgather(const std::vector<Call>& calls) {
  std::vector<Bytes> inputs;
  for (const auto& call : calls) inputs.push_back(bytes_of(call.input));
  for (const auto& call : calls) {
    for (std::size_t r = 0; r < calls.size(); ++r) copy_to(inputs[r], call.output_part(static_cast<int>(r)));
  }
}

void gather(const std::vector<Call>& calls) {
  const auto& root = calls[index(calls[0].operation.peer)];
  for (std::size_t r = 0; r < calls.size(); ++r)
    copy_to(bytes_of(calls[r].input), root.output_part(static_cast<int>(r)));
}

void scatter(const std::vector<Call>& calls) {
  const auto& root = calls[index(calls[0].operation.peer)];
  for (std::size_t r = 0; r < calls.size(); ++r)
    copy_to(bytes_of(root.input_part(static_cast<int>(r))), calls[r].output);
}

void reduce_scatter(const std::vector<Call>& calls) {
  std::vector<Bytes> parts;
  for (std::size_t r = 0; r < calls.size(); ++r) {
    parts.push_back(reduced(calls, [r](const Call& call) { return call.input_part(static_cast<int>(r)); }));
  }
  for (std::size_t r = 0; r < calls.size(); ++r) copy_to(parts[r], calls[r].output);
}

void all_to_all(const std::vector<Call>& calls) {
  const int size = static_cast<int>(calls.size());
  std::vector<std::vector<Bytes>> parts(calls.size());
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const auto part = calls[index(from)].input_part(to);
      const auto expected = calls[index(to)].output_part(from).count;
      if (part.count != expected) {
        throw make_error(Errc::mismatch, "in {}, rank {} sends {} elements to rank {}, which expects {}",
                         describe(calls[index(from)].operation), from, part.count, to, expected);
      }
      parts[index(from)].push_back(bytes_of(part));
    }
  }
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) copy_to(parts[index(from)][index(to)], calls[index(to)].output_part(from));
  }
}

Call call_of_span(const Call& call, std::size_t span) {
  Call one{call.operation, call.layout->inputs[span], call.layout->outputs[span], call.options, nullptr};
  one.operation.dtype = one.input.dtype;
  one.operation.count = call.operation.kind == OpKind::allgather ? one.input.count : one.output.count;
  one.operation.spans = 0;
  return one;
}

void coalesced(const std::vector<Call>& calls) {
  for (std::size_t span = 0; span < calls[0].layout->inputs.size(); ++span) {
    std::vector<Call> span_calls;
    for (const auto& call : calls) span_calls.push_back(call_of_span(call, span));
    execute_reference(span_calls);
  }
}

}  // namespace

void execute_reference(const std::vector<Call>& calls) {
  const auto& operation = calls[0].operation;
  if (operation.coalesced()) return coalesced(calls);
  const auto input = [](const Call& call) { return call.input; };
  switch (operation.kind) {
    case OpKind::allreduce: {
      const auto result = reduced(calls, input);
      for (const auto& call : calls) copy_to(result, call.output);
      return;
    }
    case OpKind::reduce:
      return copy_to(reduced(calls, input), calls[index(operation.peer)].output);
    case OpKind::broadcast: {
      const auto values = bytes_of(calls[index(operation.peer)].input);
      for (const auto& call : calls) copy_to(values, call.output);
      return;
    }
    case OpKind::allgather:
      return allgather(calls);
    case OpKind::reduce_scatter:
      return reduce_scatter(calls);
    case OpKind::gather:
      return gather(calls);
    case OpKind::scatter:
      return scatter(calls);
    case OpKind::all_to_all:
      return all_to_all(calls);
    default:
      return;
  }
}

}  // namespace ddprun::testing
