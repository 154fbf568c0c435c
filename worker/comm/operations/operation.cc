#include "ddprun/worker/comm/operations/operation.h"

#include <tuple>

#include <fmt/core.h>

#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {
namespace {

// What the ranks have to agree on: not the factor, and not the sizes of all_to_all's unequal parts.
auto shared_part(const Operation& operation) {
  return std::tuple(operation.kind, operation.dtype, operation.op, operation.own_parts() ? 0 : operation.count,
                    operation.peer, operation.own_parts() ? 1 : operation.parts, operation.spans, operation.layout);
}

// "allgatherv", "allreduce_coalesced(sum)"
std::string full_name(const Operation& operation) {
  std::string name(name_of(operation.kind));
  if (operation.unequal()) name += 'v';
  if (operation.coalesced()) name += "_coalesced";
  if (operation.reduces()) name += fmt::format("({})", name_of(operation.op));
  return name;
}

// "100 float32", "100 float32 in 3 spans"
std::string amount(const Operation& operation) {
  auto text = fmt::format("{} {}", operation.count, ddprun::name_of(operation.dtype));
  if (operation.unequal() && !operation.own_parts()) text += " in all";
  if (operation.coalesced()) text += fmt::format(" in {} spans", operation.spans - 1);
  return text;
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

std::string describe(const Operation& operation) {
  auto name = full_name(operation);
  switch (operation.kind) {
    case OpKind::barrier:
      return name;
    case OpKind::reduce:
    case OpKind::gather:
      return fmt::format("{} of {} to rank {}", name, amount(operation), operation.peer);
    case OpKind::broadcast:
    case OpKind::scatter:
      return fmt::format("{} of {} from rank {}", name, amount(operation), operation.peer);
    case OpKind::send:
      return fmt::format("{} of {} to rank {} with tag {}", name, amount(operation), operation.peer, operation.tag);
    case OpKind::recv:
      if (operation.peer == any_source) {
        return fmt::format("{} of {} from any rank with tag {}", name, amount(operation), operation.tag);
      }
      return fmt::format("{} of {} from rank {} with tag {}", name, amount(operation), operation.peer, operation.tag);
    default:
      return fmt::format("{} of {}", name, amount(operation));
  }
}

std::uint16_t signature(const Operation& operation) {
  return static_cast<std::uint16_t>(fingerprint(operation) >> 48);
}

}  // namespace ddprun::comm
