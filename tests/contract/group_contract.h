#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/process_group.h"

// The contract of ProcessGroup, as one suite for all back ends. A back end's test lists the clauses with
// DDPRUN_GROUP_CONTRACT; ranks run as threads of the test. A back end may refuse a reduction, or a kind of recv, with
// Errc::unsupported: its own test checks which.
namespace ddprun::contract {

using Groups = std::vector<std::unique_ptr<ProcessGroup>>;
// groups[r] is rank r's.
using MakeGroups = std::function<Groups(int size, std::chrono::milliseconds timeout)>;
using RankBody = std::function<void(ProcessGroup&)>;

inline constexpr std::chrono::milliseconds patience = std::chrono::seconds(30);

// Runs body once for each group, each on its own thread; rethrows the first exception, in rank order.
void run_ranks(Groups& groups, const RankBody& body);

// For ranks, which throw because Catch2's assertions work on the main thread only.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// The Error of a call or its wait; throws if there is none.
template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("there was no error");
}

void knows_its_rank_and_size(const MakeGroups& make, int size);
void allreduce_combines_every_type(const MakeGroups& make, int size);
void allreduce_leaves_its_input_alone(const MakeGroups& make, int size);
void allreduce_leaves_the_same_bits_everywhere(const MakeGroups& make, int size);
void premultiplied_halves_are_rounded_once(const MakeGroups& make, int size);
void reduce_combines_at_the_root(const MakeGroups& make, int size);
void reduce_works_apart_from_its_input(const MakeGroups& make, int size);
void broadcast_gives_the_roots_values(const MakeGroups& make, int size);
void allgather_orders_by_rank(const MakeGroups& make, int size);
void allgatherv_takes_unequal_parts(const MakeGroups& make, int size);
void reduce_scatter_gives_each_its_block(const MakeGroups& make, int size);
void reduce_scatterv_takes_unequal_parts(const MakeGroups& make, int size);
void reduce_scatter_and_allgather_work_in_place(const MakeGroups& make, int size);
void gather_brings_parts_to_the_root(const MakeGroups& make, int size);
void gatherv_takes_unequal_parts(const MakeGroups& make, int size);
void scatter_deals_the_roots_parts(const MakeGroups& make, int size);
void scatterv_takes_unequal_parts(const MakeGroups& make, int size);
void all_to_all_exchanges_parts(const MakeGroups& make, int size);
void all_to_allv_takes_unequal_parts(const MakeGroups& make, int size);
void bytes_of_any_length_go_from_any_place(const MakeGroups& make, int size);
void coalesced_spans_take_every_reduction(const MakeGroups& make, int size);
void coalesced_spans_are_one_operation(const MakeGroups& make, int size);
void coalesced_parts_go_where_they_belong(const MakeGroups& make, int size);
void memory_from_the_group_is_zero_and_as_large_as_said(const MakeGroups& make, int size);
void barrier_holds_until_all_have_come(const MakeGroups& make, int size);
void send_and_recv_match_by_tag(const MakeGroups& make, int size);
void many_messages_wait_for_receives_in_any_order(const MakeGroups& make, int size);
void a_recv_from_any_source_tells_who_sent(const MakeGroups& make, int size);
void recvs_from_any_source_wait_for_their_tag(const MakeGroups& make, int size);
void a_recv_from_any_source_outlives_those_who_leave(const MakeGroups& make, int size);
void zero_length_is_legal(const MakeGroups& make, int size);
void many_operations_are_in_flight(const MakeGroups& make, int size);
void operations_of_every_kind_are_in_flight(const MakeGroups& make, int size);
void large_operations_follow_each_other(const MakeGroups& make, int size);
void a_wait_that_expires_leaves_its_operation_under_way(const MakeGroups& make, int size);
void a_blocking_call_returns_when_it_is_done(const MakeGroups& make, int size);
void wrong_arguments_are_refused(const MakeGroups& make, int size);
void splits_into_groups_that_live_beside_it(const MakeGroups& make, int size);
void abort_frees_a_blocked_rank(const MakeGroups& make, int size);
void abort_ends_every_kind_of_operation(const MakeGroups& make, int size);
void an_abort_ends_all_at_whatever_point(const MakeGroups& make, int size);
void a_rank_that_does_not_come_is_named(const MakeGroups& make, int size);
void a_rank_that_leaves_is_named(const MakeGroups& make, int size);
void a_message_is_given_up_with_the_rank_that_leaves(const MakeGroups& make, int size);
void a_different_operation_is_named(const MakeGroups& make, int size);
void a_message_that_differs_at_its_ends_is_named(const MakeGroups& make, int size);

}  // namespace ddprun::contract

// One test case for each clause, over the given sizes.
#define DDPRUN_GROUP_CLAUSE(backend, make, clause, ...)      \
  TEST_CASE(backend " group: " #clause) {                    \
    for (const int size : __VA_ARGS__) {                     \
      INFO("size " << size);                                 \
      REQUIRE_NOTHROW(ddprun::contract::clause(make, size)); \
    }                                                        \
  }
// Clauses that need host memory or operations that NCCL lacks.
#define DDPRUN_HOST_GROUP_CONTRACT(backend, make, ...)                                                \
  DDPRUN_GROUP_CLAUSE(backend, make, premultiplied_halves_are_rounded_once, __VA_ARGS__)              \
  DDPRUN_GROUP_CLAUSE(backend, make, memory_from_the_group_is_zero_and_as_large_as_said, __VA_ARGS__) \
  DDPRUN_GROUP_CLAUSE(backend, make, many_messages_wait_for_receives_in_any_order, __VA_ARGS__)       \
  DDPRUN_GROUP_CLAUSE(backend, make, a_recv_from_any_source_tells_who_sent, __VA_ARGS__)              \
  DDPRUN_GROUP_CLAUSE(backend, make, recvs_from_any_source_wait_for_their_tag, __VA_ARGS__)           \
  DDPRUN_GROUP_CLAUSE(backend, make, a_recv_from_any_source_outlives_those_who_leave, __VA_ARGS__)
// Clauses for every back end.
#define DDPRUN_ANY_GROUP_CONTRACT(backend, make, ...)                                                 \
  DDPRUN_GROUP_CLAUSE(backend, make, knows_its_rank_and_size, __VA_ARGS__)                            \
  DDPRUN_GROUP_CLAUSE(backend, make, allreduce_combines_every_type, __VA_ARGS__)                      \
  DDPRUN_GROUP_CLAUSE(backend, make, allreduce_leaves_its_input_alone, __VA_ARGS__)                   \
  DDPRUN_GROUP_CLAUSE(backend, make, allreduce_leaves_the_same_bits_everywhere, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_combines_at_the_root, __VA_ARGS__)                        \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_works_apart_from_its_input, __VA_ARGS__)                  \
  DDPRUN_GROUP_CLAUSE(backend, make, broadcast_gives_the_roots_values, __VA_ARGS__)                   \
  DDPRUN_GROUP_CLAUSE(backend, make, allgather_orders_by_rank, __VA_ARGS__)                           \
  DDPRUN_GROUP_CLAUSE(backend, make, allgatherv_takes_unequal_parts, __VA_ARGS__)                     \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_scatter_gives_each_its_block, __VA_ARGS__)                \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_scatterv_takes_unequal_parts, __VA_ARGS__)                \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_scatter_and_allgather_work_in_place, __VA_ARGS__)         \
  DDPRUN_GROUP_CLAUSE(backend, make, gather_brings_parts_to_the_root, __VA_ARGS__)                    \
  DDPRUN_GROUP_CLAUSE(backend, make, gatherv_takes_unequal_parts, __VA_ARGS__)                        \
  DDPRUN_GROUP_CLAUSE(backend, make, scatter_deals_the_roots_parts, __VA_ARGS__)                      \
  DDPRUN_GROUP_CLAUSE(backend, make, scatterv_takes_unequal_parts, __VA_ARGS__)                       \
  DDPRUN_GROUP_CLAUSE(backend, make, all_to_all_exchanges_parts, __VA_ARGS__)                         \
  DDPRUN_GROUP_CLAUSE(backend, make, all_to_allv_takes_unequal_parts, __VA_ARGS__)                    \
  DDPRUN_GROUP_CLAUSE(backend, make, bytes_of_any_length_go_from_any_place, __VA_ARGS__)              \
  DDPRUN_GROUP_CLAUSE(backend, make, coalesced_spans_take_every_reduction, __VA_ARGS__)               \
  DDPRUN_GROUP_CLAUSE(backend, make, coalesced_spans_are_one_operation, __VA_ARGS__)                  \
  DDPRUN_GROUP_CLAUSE(backend, make, coalesced_parts_go_where_they_belong, __VA_ARGS__)               \
  DDPRUN_GROUP_CLAUSE(backend, make, barrier_holds_until_all_have_come, __VA_ARGS__)                  \
  DDPRUN_GROUP_CLAUSE(backend, make, send_and_recv_match_by_tag, __VA_ARGS__)                         \
  DDPRUN_GROUP_CLAUSE(backend, make, zero_length_is_legal, __VA_ARGS__)                               \
  DDPRUN_GROUP_CLAUSE(backend, make, many_operations_are_in_flight, __VA_ARGS__)                      \
  DDPRUN_GROUP_CLAUSE(backend, make, operations_of_every_kind_are_in_flight, __VA_ARGS__)             \
  DDPRUN_GROUP_CLAUSE(backend, make, large_operations_follow_each_other, __VA_ARGS__)                 \
  DDPRUN_GROUP_CLAUSE(backend, make, a_wait_that_expires_leaves_its_operation_under_way, __VA_ARGS__) \
  DDPRUN_GROUP_CLAUSE(backend, make, a_blocking_call_returns_when_it_is_done, __VA_ARGS__)            \
  DDPRUN_GROUP_CLAUSE(backend, make, wrong_arguments_are_refused, __VA_ARGS__)                        \
  DDPRUN_GROUP_CLAUSE(backend, make, splits_into_groups_that_live_beside_it, __VA_ARGS__)             \
  DDPRUN_GROUP_CLAUSE(backend, make, abort_frees_a_blocked_rank, __VA_ARGS__)                         \
  DDPRUN_GROUP_CLAUSE(backend, make, abort_ends_every_kind_of_operation, __VA_ARGS__)                 \
  DDPRUN_GROUP_CLAUSE(backend, make, an_abort_ends_all_at_whatever_point, __VA_ARGS__)                \
  DDPRUN_GROUP_CLAUSE(backend, make, a_rank_that_does_not_come_is_named, __VA_ARGS__)                 \
  DDPRUN_GROUP_CLAUSE(backend, make, a_rank_that_leaves_is_named, __VA_ARGS__)                        \
  DDPRUN_GROUP_CLAUSE(backend, make, a_message_is_given_up_with_the_rank_that_leaves, __VA_ARGS__)    \
  DDPRUN_GROUP_CLAUSE(backend, make, a_different_operation_is_named, __VA_ARGS__)                     \
  DDPRUN_GROUP_CLAUSE(backend, make, a_message_that_differs_at_its_ends_is_named, __VA_ARGS__)
// All clauses.
#define DDPRUN_GROUP_CONTRACT(backend, make, ...)       \
  DDPRUN_ANY_GROUP_CONTRACT(backend, make, __VA_ARGS__) \
  DDPRUN_HOST_GROUP_CONTRACT(backend, make, __VA_ARGS__)
