#include "worker/comm/operations/part_transfers.h"

#include "common/error.h"

namespace ddprun::comm {
namespace {

class Builder {
 public:
  explicit Builder(RankInfo rank_info) : rank_info_(rank_info) {}

  // input(r): the memory that rank r receives from this one, which may be r.
  template <class Input>
  Builder& send_to_all(Input input) {
    for_each_other([&](int r) { send(input(r), r); });
    transfers_.own_input = input(rank_info_.rank);
    return *this;
  }
  template <class Output>
  Builder& receive_from_all(Output output) {
    for_each_other([&](int r) { receive(output(r), r); });
    transfers_.own_output = output(rank_info_.rank);
    return *this;
  }
  Builder& send(ConstSpan part, int destination) {
    if (part.count > 0) transfers_.sends.push_back({part, destination});
    return *this;
  }
  Builder& receive(Span part, int source) {
    if (part.count > 0) transfers_.receives.push_back({part, source});
    return *this;
  }
  Builder& own(ConstSpan input, Span output) {
    transfers_.own_input = input;
    transfers_.own_output = output;
    return *this;
  }
  PartTransfers take() { return std::move(transfers_); }

 private:
  template <class Body>
  void for_each_other(Body body) {
    for (int step = 1; step < rank_info_.size; ++step) body((rank_info_.rank + step) % rank_info_.size);
  }

  const RankInfo rank_info_;
  PartTransfers transfers_;
};

}  // namespace

PartTransfers part_transfers(const Call& call, RankInfo rank_info) {
  Builder builder(rank_info);
  const int root = call.operation.peer;
  const auto input_part = [&](int r) { return call.input_part(r); };
  const auto output_part = [&](int r) { return call.output_part(r); };
  switch (call.operation.kind) {
    case OpKind::allgather:
      return builder.send_to_all([&](int) { return call.input; }).receive_from_all(output_part).take();
    case OpKind::gather:
      if (rank_info.rank != root) return builder.send(call.input, root).take();
      return builder.receive_from_all(output_part).own(call.input, call.output_part(root)).take();
    case OpKind::scatter:
      if (rank_info.rank != root) return builder.receive(call.output, root).take();
      return builder.send_to_all(input_part).own(call.input_part(root), call.output).take();
    case OpKind::all_to_all:
      return builder.send_to_all(input_part).receive_from_all(output_part).take();
    default:
      throw make_error(Errc::internal, "{} is not an operation that only moves parts", describe(call.operation));
  }
}

}  // namespace ddprun::comm
