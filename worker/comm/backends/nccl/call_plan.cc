#include "worker/comm/backends/nccl/call_plan.h"

#include "worker/comm/operations/part_transfers.h"

namespace ddprun::comm {
namespace {

// Returns whether NCCL executes the operation as sends and receives.
bool moves_parts(const Operation& operation) {
  return operation.kind == OpKind::gather || operation.kind == OpKind::scatter ||
         operation.kind == OpKind::all_to_all || (operation.kind == OpKind::allgather && operation.unequal());
}

CallPlan plan_transfers(const Collective& collective, RankInfo rank_info) {
  const auto transfers = part_transfers(collective, rank_info);
  CallPlan plan;
  if (transfers.copies_own()) {
    plan.own_input = transfers.own_input;
    plan.own_output = transfers.own_output.data;
  }
  for (const auto& [part, source] : transfers.receives) {
    plan.calls.push_back({OpKind::recv, nullptr, part.data, part.count, part.dtype, source});
  }
  for (const auto& [part, destination] : transfers.sends) {
    plan.calls.push_back({OpKind::send, part.data, nullptr, part.count, part.dtype, destination});
  }
  return plan;
}

CallPlan plan_unequal_reduction(const Collective& collective, RankInfo rank_info) {
  CallPlan plan;
  for (int rank = 0; rank < rank_info.size; ++rank) {
    const auto part = collective.input_part(rank);
    if (part.count == 0) continue;
    void* const output = rank == rank_info.rank ? collective.output.data : nullptr;
    plan.calls.push_back({OpKind::reduce, part.data, output, part.count, part.dtype, rank});
  }
  return plan;
}

CallPlan plan_spans(const Collective& collective) {
  const auto kind = collective.operation.kind;
  const auto& inputs = collective.layout->inputs;
  const auto& outputs = collective.layout->outputs;
  CallPlan plan;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto count = kind == OpKind::allgather ? inputs[i].count : outputs[i].count;
    if (count == 0) continue;
    plan.calls.push_back({kind, inputs[i].data, outputs[i].data, count, outputs[i].dtype, collective.operation.peer});
  }
  return plan;
}

}  // namespace

CallPlan plan_calls(const Collective& collective, RankInfo rank_info) {
  const auto& operation = collective.operation;
  if (operation.coalesced()) return plan_spans(collective);
  if (moves_parts(operation)) return plan_transfers(collective, rank_info);
  if (operation.reduces() && operation.unequal()) return plan_unequal_reduction(collective, rank_info);
  return {{},
          nullptr,
          {{operation.kind, collective.input.data, collective.output.data, operation.count, operation.dtype,
            operation.peer}}};
}

}  // namespace ddprun::comm
