#include "rendezvous/progress/operation_description.h"

#include <tuple>

#include <fmt/format.h>

#include "rendezvous/progress/fields.h"

namespace ddprun {
namespace {

constexpr std::size_t longest_name = 32;
constexpr std::string_view no_name = "-";

// Names are printed on a terminal, so they may have only the characters of names of operations and types.
std::optional<std::string> name_in(std::string_view text) {
  if (text.empty() || text.size() > longest_name) return std::nullopt;
  for (const char c : text)
    if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_') return std::nullopt;
  return std::string(text);
}

// "allgatherv", "allreduce_coalesced(sum)"
std::string full_name(const OperationDescription& operation) {
  auto name = operation.kind;
  if (operation.parts != 0) name += 'v';
  if (operation.spans != 0) name += "_coalesced";
  if (!operation.reduce_op.empty()) name += fmt::format("({})", operation.reduce_op);
  return name;
}

// "100 float32", with what the count includes
std::string amount(const OperationDescription& operation) {
  auto text = fmt::format("{} {}", operation.count, operation.dtype);
  if (operation.parts != 0 && !operation.own_parts()) text += " in all";
  if (operation.spans != 0) text += fmt::format(" in {} spans", operation.spans - 1);
  if (operation.spans == 0 && operation.layout != 0) text += fmt::format(", a piece of {}", operation.layout);
  return text;
}

// " from rank 2"; empty for an operation without a root or peer.
std::string peer_text(const OperationDescription& operation) {
  const auto& kind = operation.kind;
  if (operation.from_any_source()) return " from any rank";
  if (kind == "reduce" || kind == "gather" || kind == "send") return fmt::format(" to rank {}", operation.peer);
  if (kind == "broadcast" || kind == "scatter" || kind == "recv") return fmt::format(" from rank {}", operation.peer);
  return "";
}

auto shared_fields(const OperationDescription& operation) {
  return std::tuple(std::string_view(operation.kind), std::string_view(operation.reduce_op),
                    std::string_view(operation.dtype), operation.own_parts() ? 0 : operation.count, operation.peer,
                    operation.tag, operation.own_parts() ? 1 : operation.parts, operation.spans, operation.layout);
}

}  // namespace

bool agree(const OperationDescription& one, const OperationDescription& other) {
  return shared_fields(one) == shared_fields(other);
}

std::string describe(const OperationDescription& operation) {
  if (operation.kind == "barrier") return operation.kind;
  auto text = fmt::format("{} of {}{}", full_name(operation), amount(operation), peer_text(operation));
  if (operation.point_to_point()) text += fmt::format(" with tag {}", operation.tag);
  return text;
}

std::string encode(const OperationDescription& operation) {
  return fmt::format("{} {} {} {} {} {} {} {} {}", operation.kind,
                     operation.reduce_op.empty() ? no_name : operation.reduce_op, operation.dtype, operation.count,
                     operation.peer, operation.tag, operation.parts, operation.spans, operation.layout);
}

std::optional<OperationDescription> decode_operation_description(std::string_view line) {
  Fields fields(line);
  const auto kind = name_in(fields.next(' '));
  const auto op_text = fields.next(' ');
  const auto reduce_op = op_text == no_name ? std::optional<std::string>("") : name_in(op_text);
  const auto dtype = name_in(fields.next(' '));
  if (!kind || !reduce_op || !dtype) return std::nullopt;
  OperationDescription operation{.kind = *kind,
                                 .reduce_op = *reduce_op,
                                 .dtype = *dtype,
                                 .count = fields.number<std::uint64_t>(' '),
                                 .peer = fields.number<int>(' '),
                                 .tag = fields.number<int>(' '),
                                 .parts = fields.number<std::uint32_t>(' '),
                                 .spans = fields.number<std::uint32_t>(' '),
                                 .layout = fields.number<std::uint64_t>(' ')};
  if (!fields.good() || !fields.at_end()) return std::nullopt;
  return operation;
}

}  // namespace ddprun
