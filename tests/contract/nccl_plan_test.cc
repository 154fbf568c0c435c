// The NCCL calls of a collective, and the conditions for shrinking a communicator: needs neither device nor library.
#include "worker/comm/backends/nccl/call_plan.h"
#include "worker/comm/backends/nccl/channels.h"
#include "worker/comm/backends/nccl/ring_traffic.h"
#include "worker/comm/backends/nccl/shrink.h"
#include "worker/comm/backends/nccl/unique_ids.h"
#include "worker/comm/operations/checked_call.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

CallPlan plan(const Call& call, RankInfo rank_info) {
  Collective collective;
  static_cast<Call&>(collective) = call;
  return plan_calls(collective, rank_info);
}

constexpr RankInfo middle{1, 3};

}  // namespace

TEST_CASE("an operation that NCCL has is one call") {
  std::vector<float> input(6), output(2);
  const auto [own_input, own_output, calls] =
      plan(checked_reduce_scatter(span_of(input), span_of(output), nullptr, ReduceOp::max, middle, {}), middle);
  CHECK(own_input.count == 0);
  CHECK(calls ==
        std::vector<PlannedCall>{{OpKind::reduce_scatter, input.data(), output.data(), 2, DType::float32, -1}});
}

TEST_CASE("a reduction in unequal parts is a reduce to each rank that has a part") {
  std::vector<double> input(5), output(2);
  const Counts counts{3, 2, 0};
  const auto reductions =
      plan(checked_reduce_scatter(span_of(input), span_of(output), &counts, ReduceOp::sum, middle, {}), middle);
  CHECK(reductions.calls ==
        std::vector<PlannedCall>{{OpKind::reduce, input.data(), nullptr, 3, DType::float64, 0},
                                 {OpKind::reduce, input.data() + 3, output.data(), 2, DType::float64, 1}});
}

TEST_CASE("an operation that moves parts is sends and receives, except for the rank's own part") {
  std::vector<std::int32_t> input(2), output(6);
  const Counts counts{1, 2, 3};
  const auto [own_input, own_output, calls] =
      plan(checked_allgather(span_of(input), span_of(output), &counts, middle, {}), middle);
  CHECK(own_input.data == input.data());
  CHECK(own_input.count == 2);
  CHECK(own_output == output.data() + 1);
  CHECK(calls == std::vector<PlannedCall>{{OpKind::recv, nullptr, output.data() + 3, 3, DType::int32, 2},
                                          {OpKind::recv, nullptr, output.data(), 1, DType::int32, 0},
                                          {OpKind::send, input.data(), nullptr, 2, DType::int32, 2},
                                          {OpKind::send, input.data(), nullptr, 2, DType::int32, 0}});
}

TEST_CASE("a coalesced operation is a call for each span that is not empty") {
  std::vector<float> floats(4);
  std::vector<std::int64_t> whole(3);
  const auto calls = plan(checked_broadcast({span_of(floats), Span{}, span_of(whole)}, 2, middle, {}), middle).calls;
  CHECK(calls == std::vector<PlannedCall>{{OpKind::broadcast, floats.data(), floats.data(), 4, DType::float32, 2},
                                          {OpKind::broadcast, whole.data(), whole.data(), 3, DType::int64, 2}});
}

TEST_CASE("a communicator can be shrunk if the survivors keep their order and there is no new member") {
  using Ranks = std::vector<int>;
  CHECK(ranks_to_exclude(4, {0, 1, 3}) == Ranks{2});
  CHECK(ranks_to_exclude(4, {2}) == Ranks{0, 1, 3});
  CHECK_FALSE(ranks_to_exclude(4, {0, 1, 2, 3}));  // no member has left
  CHECK_FALSE(ranks_to_exclude(4, {0, 1, -1}));    // a new member
  CHECK_FALSE(ranks_to_exclude(4, {1, 0}));        // another order
  CHECK_FALSE(ranks_to_exclude(4, {}));
  CHECK(version_has_shrink(22703));
  CHECK_FALSE(version_has_shrink(22605));
}

TEST_CASE("a rank has one channel for each sender, receiver and tag, up to a limit") {
  CHECK(channel_of({.kind = OpKind::send, .peer = 4, .tag = 7}, 2) == ChannelName{2, 4, 7});
  CHECK(channel_of({.kind = OpKind::recv, .peer = 4, .tag = 7}, 2) == ChannelName{4, 2, 7});
  ChannelCount channels;
  for (int tag = 0; tag < static_cast<int>(ChannelCount::max_channels); ++tag) channels.add({0, 1, tag});
  CHECK_NOTHROW(channels.add({0, 1, 3}));
  CHECK_THROWS_AS(channels.add({1, 0, 3}), Error);
}

TEST_CASE("each 128 ranks of a communicator have a unique id, made by the first of their share") {
  using Ranks = std::vector<int>;
  CHECK(makers_of_ids(1, 128) == Ranks{0});
  CHECK(makers_of_ids(128, 128) == Ranks{0});
  CHECK(makers_of_ids(130, 128) == Ranks{0, 65});
  CHECK(makers_of_ids(5, 2) == Ranks{0, 2, 4});
  CHECK(makers_of_ids(1024, 128) == Ranks{0, 128, 256, 384, 512, 640, 768, 896});
}

TEST_CASE("what NCCL sends between hosts is calculated for a ring") {
  const RingTraffic two_hosts(HostMap({"a", "a", "a", "b"}), 0), alone(HostMap({"a", "a", "a", "b"}), 3),
      one_host(HostMap({"a", "a", "a", "a"}), 0);
  const auto call = [](OpKind kind, int peer = -1) {
    return PlannedCall{kind, nullptr, nullptr, 300, DType::float16, peer};
  };
  CHECK(two_hosts.of(call(OpKind::allreduce)) == 2 * 600 * 3 / 4 / 3);
  CHECK(alone.of(call(OpKind::allreduce)) == 2 * 600 * 3 / 4);
  CHECK(alone.of(call(OpKind::allgather)) == 3 * 600);
  CHECK(alone.of(call(OpKind::reduce_scatter)) == 3 * 600);
  CHECK(alone.of(call(OpKind::broadcast, 0)) == 600);
  CHECK(alone.of(call(OpKind::reduce, 0)) == 600);
  CHECK(alone.of(call(OpKind::barrier)) == 0);
  CHECK(alone.of(call(OpKind::send, 1)) == 600);
  CHECK(alone.of(call(OpKind::recv, 1)) == 0);
  CHECK(two_hosts.of(call(OpKind::send, 1)) == 0);
  CHECK(one_host.of(call(OpKind::allreduce)) == 0);
}
