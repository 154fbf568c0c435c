#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "worker/comm/process_group.h"

// The contract of ProcessGroup, as one suite for all back ends. A back end's test instantiates it with
// DDPRUN_GROUP_CONTRACT; the ranks are threads of the test. A back end may refuse a reduction, or a kind of recv, with
// Errc::unsupported: its own test checks which.
namespace ddprun::contract {

using Groups = std::vector<std::unique_ptr<ProcessGroup>>;
// groups[r] is rank r's.
using MakeGroups = std::function<Groups(int size, std::chrono::milliseconds timeout)>;
using RankBody = std::function<void(ProcessGroup&)>;

inline constexpr std::chrono::milliseconds test_timeout = std::chrono::seconds(30);

// Runs body for each group on a thread of its own; rethrows the first exception in rank order.
void run_ranks(Groups& groups, const RankBody& body);

// Catch2's assertions work on the main thread only: ranks throw instead.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Returns the Error of a call or its wait; throws when there is none.
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
void allreduce_does_not_change_its_input(const MakeGroups& make, int size);
void allreduce_results_are_bit_identical(const MakeGroups& make, int size);
void premultiplied_halves_are_rounded_once(const MakeGroups& make, int size);
void reduce_combines_at_the_root(const MakeGroups& make, int size);
void reduce_works_apart_from_its_input(const MakeGroups& make, int size);
void broadcast_copies_the_roots_values(const MakeGroups& make, int size);
void allgather_orders_by_rank(const MakeGroups& make, int size);
void allgatherv_takes_unequal_parts(const MakeGroups& make, int size);
void reduce_scatter_returns_each_ranks_block(const MakeGroups& make, int size);
void reduce_scatterv_takes_unequal_parts(const MakeGroups& make, int size);
void reduce_scatter_and_allgather_work_in_place(const MakeGroups& make, int size);
void gather_collects_parts_at_the_root(const MakeGroups& make, int size);
void gatherv_takes_unequal_parts(const MakeGroups& make, int size);
void scatter_distributes_the_roots_parts(const MakeGroups& make, int size);
void scatterv_takes_unequal_parts(const MakeGroups& make, int size);
void all_to_all_exchanges_parts(const MakeGroups& make, int size);
void all_to_allv_takes_unequal_parts(const MakeGroups& make, int size);
void bytes_have_any_length_and_alignment(const MakeGroups& make, int size);
void texts_have_any_length(const MakeGroups& make, int size);
void coalesced_spans_take_every_reduction(const MakeGroups& make, int size);
void coalesced_spans_are_one_operation(const MakeGroups& make, int size);
void coalesced_parts_are_placed_in_rank_order(const MakeGroups& make, int size);
void allocated_memory_is_zero_and_of_the_requested_size(const MakeGroups& make, int size);
void barrier_waits_for_all_ranks(const MakeGroups& make, int size);
void send_and_recv_match_by_tag(const MakeGroups& make, int size);
void many_sends_match_receives_in_any_order(const MakeGroups& make, int size);
void messages_of_allocated_memory_arrive(const MakeGroups& make, int size);
void a_recv_from_any_source_reports_the_sender(const MakeGroups& make, int size);
void recvs_from_any_source_match_their_tag(const MakeGroups& make, int size);
void a_recv_from_any_source_survives_departures(const MakeGroups& make, int size);
void zero_length_is_legal(const MakeGroups& make, int size);
void many_operations_are_in_flight(const MakeGroups& make, int size);
void operations_of_every_kind_are_in_flight(const MakeGroups& make, int size);
void consecutive_large_operations_do_not_interfere(const MakeGroups& make, int size);
void an_expired_wait_does_not_end_its_operation(const MakeGroups& make, int size);
void a_blocking_call_returns_when_it_has_finished(const MakeGroups& make, int size);
void wrong_arguments_are_refused(const MakeGroups& make, int size);
void subgroups_are_independent_of_their_parent(const MakeGroups& make, int size);
void abort_ends_a_blocked_call(const MakeGroups& make, int size);
void abort_ends_every_kind_of_operation(const MakeGroups& make, int size);
void an_abort_at_any_point_ends_all_ranks(const MakeGroups& make, int size);
void a_rank_that_does_not_call_is_named(const MakeGroups& make, int size);
void a_rank_that_leaves_is_named(const MakeGroups& make, int size);
void a_message_fails_when_its_peer_leaves(const MakeGroups& make, int size);
void a_different_operation_is_named(const MakeGroups& make, int size);
void a_message_with_different_ends_is_named(const MakeGroups& make, int size);

}  // namespace ddprun::contract

// One test case per clause, for the given group sizes.
#define DDPRUN_GROUP_CLAUSE(backend, make, clause, ...)      \
  TEST_CASE(backend " group: " #clause) {                    \
    for (const int size : __VA_ARGS__) {                     \
      INFO("size " << size);                                 \
      REQUIRE_NOTHROW(ddprun::contract::clause(make, size)); \
    }                                                        \
  }
// The clauses that NCCL does not implement: only for host memory.
#define DDPRUN_HOST_GROUP_CONTRACT(backend, make, ...)                                                \
  DDPRUN_GROUP_CLAUSE(backend, make, premultiplied_halves_are_rounded_once, __VA_ARGS__)              \
  DDPRUN_GROUP_CLAUSE(backend, make, allocated_memory_is_zero_and_of_the_requested_size, __VA_ARGS__) \
  DDPRUN_GROUP_CLAUSE(backend, make, many_sends_match_receives_in_any_order, __VA_ARGS__)             \
  DDPRUN_GROUP_CLAUSE(backend, make, messages_of_allocated_memory_arrive, __VA_ARGS__)                \
  DDPRUN_GROUP_CLAUSE(backend, make, a_recv_from_any_source_reports_the_sender, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, recvs_from_any_source_match_their_tag, __VA_ARGS__)              \
  DDPRUN_GROUP_CLAUSE(backend, make, a_recv_from_any_source_survives_departures, __VA_ARGS__)
// Only collectives, without messages and failures.
#define DDPRUN_COLLECTIVE_CONTRACT(backend, make, ...)                                        \
  DDPRUN_GROUP_CLAUSE(backend, make, knows_its_rank_and_size, __VA_ARGS__)                    \
  DDPRUN_GROUP_CLAUSE(backend, make, allreduce_combines_every_type, __VA_ARGS__)              \
  DDPRUN_GROUP_CLAUSE(backend, make, allreduce_does_not_change_its_input, __VA_ARGS__)        \
  DDPRUN_GROUP_CLAUSE(backend, make, allreduce_results_are_bit_identical, __VA_ARGS__)        \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_combines_at_the_root, __VA_ARGS__)                \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_works_apart_from_its_input, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, broadcast_copies_the_roots_values, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, allgather_orders_by_rank, __VA_ARGS__)                   \
  DDPRUN_GROUP_CLAUSE(backend, make, allgatherv_takes_unequal_parts, __VA_ARGS__)             \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_scatter_returns_each_ranks_block, __VA_ARGS__)    \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_scatterv_takes_unequal_parts, __VA_ARGS__)        \
  DDPRUN_GROUP_CLAUSE(backend, make, reduce_scatter_and_allgather_work_in_place, __VA_ARGS__) \
  DDPRUN_GROUP_CLAUSE(backend, make, gather_collects_parts_at_the_root, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, gatherv_takes_unequal_parts, __VA_ARGS__)                \
  DDPRUN_GROUP_CLAUSE(backend, make, scatter_distributes_the_roots_parts, __VA_ARGS__)        \
  DDPRUN_GROUP_CLAUSE(backend, make, scatterv_takes_unequal_parts, __VA_ARGS__)               \
  DDPRUN_GROUP_CLAUSE(backend, make, all_to_all_exchanges_parts, __VA_ARGS__)                 \
  DDPRUN_GROUP_CLAUSE(backend, make, all_to_allv_takes_unequal_parts, __VA_ARGS__)            \
  DDPRUN_GROUP_CLAUSE(backend, make, coalesced_spans_take_every_reduction, __VA_ARGS__)       \
  DDPRUN_GROUP_CLAUSE(backend, make, coalesced_spans_are_one_operation, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, coalesced_parts_are_placed_in_rank_order, __VA_ARGS__)   \
  DDPRUN_GROUP_CLAUSE(backend, make, barrier_waits_for_all_ranks, __VA_ARGS__)
// The clauses that every back end implements.
#define DDPRUN_ANY_GROUP_CONTRACT(backend, make, ...)                                            \
  DDPRUN_COLLECTIVE_CONTRACT(backend, make, __VA_ARGS__)                                         \
  DDPRUN_GROUP_CLAUSE(backend, make, bytes_have_any_length_and_alignment, __VA_ARGS__)           \
  DDPRUN_GROUP_CLAUSE(backend, make, texts_have_any_length, __VA_ARGS__)                         \
  DDPRUN_GROUP_CLAUSE(backend, make, send_and_recv_match_by_tag, __VA_ARGS__)                    \
  DDPRUN_GROUP_CLAUSE(backend, make, zero_length_is_legal, __VA_ARGS__)                          \
  DDPRUN_GROUP_CLAUSE(backend, make, many_operations_are_in_flight, __VA_ARGS__)                 \
  DDPRUN_GROUP_CLAUSE(backend, make, operations_of_every_kind_are_in_flight, __VA_ARGS__)        \
  DDPRUN_GROUP_CLAUSE(backend, make, consecutive_large_operations_do_not_interfere, __VA_ARGS__) \
  DDPRUN_GROUP_CLAUSE(backend, make, an_expired_wait_does_not_end_its_operation, __VA_ARGS__)    \
  DDPRUN_GROUP_CLAUSE(backend, make, a_blocking_call_returns_when_it_has_finished, __VA_ARGS__)  \
  DDPRUN_GROUP_CLAUSE(backend, make, wrong_arguments_are_refused, __VA_ARGS__)                   \
  DDPRUN_GROUP_CLAUSE(backend, make, subgroups_are_independent_of_their_parent, __VA_ARGS__)     \
  DDPRUN_GROUP_CLAUSE(backend, make, abort_ends_a_blocked_call, __VA_ARGS__)                     \
  DDPRUN_GROUP_CLAUSE(backend, make, abort_ends_every_kind_of_operation, __VA_ARGS__)            \
  DDPRUN_GROUP_CLAUSE(backend, make, an_abort_at_any_point_ends_all_ranks, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, a_rank_that_does_not_call_is_named, __VA_ARGS__)            \
  DDPRUN_GROUP_CLAUSE(backend, make, a_rank_that_leaves_is_named, __VA_ARGS__)                   \
  DDPRUN_GROUP_CLAUSE(backend, make, a_message_fails_when_its_peer_leaves, __VA_ARGS__)          \
  DDPRUN_GROUP_CLAUSE(backend, make, a_different_operation_is_named, __VA_ARGS__)                \
  DDPRUN_GROUP_CLAUSE(backend, make, a_message_with_different_ends_is_named, __VA_ARGS__)
// The whole contract.
#define DDPRUN_GROUP_CONTRACT(backend, make, ...)       \
  DDPRUN_ANY_GROUP_CONTRACT(backend, make, __VA_ARGS__) \
  DDPRUN_HOST_GROUP_CONTRACT(backend, make, __VA_ARGS__)
