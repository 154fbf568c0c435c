#pragma once

#include <cstddef>

#include "worker/comm/operations/operation.h"

// Functions that tell which input a rank contributes to a collective, and so could publish with its announcement.
namespace ddprun::comm {

// Returns whether all ranks contribute equal parts. Otherwise peers need to know more than the input.
inline bool has_equal_parts(const Operation& operation) {
  return !operation.unequal() && operation.kind != OpKind::gather && operation.kind != OpKind::scatter;
}

// Returns whether every rank knows what part of each rank's input it needs.
inline bool has_known_parts(const Operation& operation) {
  return has_equal_parts(operation) ||
         (operation.unequal() && (operation.kind == OpKind::reduce_scatter || operation.kind == OpKind::allgather));
}

// Size of the input of a rank that has one.
inline std::size_t input_bytes(const Operation& operation, int ranks) {
  const auto bytes = operation.count * size_of(operation.dtype);
  if (operation.kind == OpKind::reduce_scatter || operation.kind == OpKind::all_to_all)
    return bytes * static_cast<std::size_t>(ranks);
  return bytes;
}

// Returns the size of a rank's input: in a broadcast, only the root has one.
inline std::size_t input_bytes_of(const Operation& operation, int ranks, int rank) {
  return operation.kind == OpKind::broadcast && operation.peer != rank ? 0 : input_bytes(operation, ranks);
}

}  // namespace ddprun::comm
