#include "worker/comm/operations/operation.h"

#include <tuple>

namespace ddprun::comm {
namespace {

// Returns what the ranks have to agree on: not the factor, and not the sizes of all_to_all's unequal parts.
auto shared_part(const Operation& operation) {
  return std::tuple(operation.kind, operation.dtype, operation.op, operation.own_parts() ? 0 : operation.count,
                    operation.peer, operation.own_parts() ? 1 : operation.parts, operation.spans, operation.layout);
}

}  // namespace

std::string_view name_of(OpKind kind) {
  constexpr std::string_view names[] = {"allreduce",      "reduce", "broadcast", "allgather",
                                        "reduce_scatter", "gather", "scatter",   "all_to_all",
                                        "barrier",        "send",   "recv"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"sum",    "average", "product",          "min", "max", "bit_and",
                                        "bit_or", "bit_xor", "premultiplied_sum"};
  return names[static_cast<std::size_t>(op)];
}

bool agree(const Operation& one, const Operation& other) {
  return shared_part(one) == shared_part(other);
}

OperationDescription description_of(const Operation& operation) {
  return {.kind = std::string(name_of(operation.kind)),
          .reduce_op = operation.reduces() ? std::string(name_of(operation.op)) : "",
          .dtype = std::string(ddprun::name_of(operation.dtype)),
          .count = operation.count,
          .peer = operation.peer,
          .tag = operation.tag,
          .parts = operation.parts,
          .spans = operation.spans,
          .layout = operation.layout};
}

std::string describe(const Operation& operation) {
  return ddprun::describe(description_of(operation));
}

std::uint16_t signature(const Operation& operation) {
  return static_cast<std::uint16_t>(fingerprint(operation) >> 48);
}

}  // namespace ddprun::comm
