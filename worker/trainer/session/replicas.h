#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/data_parallelism.h"

// The detection of silent data corruption: ranks that have to have the same parameters compare them.
namespace ddprun::trainer {

// Returns SHA-256 over the bytes of all parameters in the model's order: two runs with the same digest have the same
// parameters to the last bit.
std::string parameter_digest(const nn::Module& model);
// The overload for parameters that may be sharded among the ranks. Collective. visit: Session::visit_parameters() or
// DataParallelism::visit_parameters().
using VisitParameters = std::function<void(const DataParallelism::Visitor& visitor)>;
std::string parameter_digest(const VisitParameters& visit);

// Calls visitor(group, name, value) for each parameter, or part of one, of which all ranks of group have a copy, in the
// same order at all of them. See Session::visit_replicas().
using ReplicaVisitor = std::function<void(ProcessGroup& group, const std::string& name, const Tensor& value)>;
using VisitReplicas = std::function<void(const ReplicaVisitor& visitor)>;

// The bytes of a group's copies that are compared: range number index of so many equal ones.
struct ReplicaRange {
  std::int64_t index = 0;
  std::int64_t ranges = 1;
};

// Compares copies by CRC-32C, which costs an allgather of 4 bytes in each group. Throws Errc::mismatch at every rank of
// a group in which they differ, naming the step, the ranks that the majority outvotes, or all if there is no majority,
// with their hosts, and the first parameter that differs. rank: this process's in the job. Collective.
void check_replicas(const VisitReplicas& visit, int rank, std::int64_t step, ReplicaRange range = {});

// Compares a digest of all parameters at the end of a run in the same way.
void check_digest(const std::string& digest, ProcessGroup& group);

// Returns the positions of the values outvoted by a majority of more than half; all if there is none and they differ.
std::vector<std::size_t> outvoted(std::span<const std::string> values);

}  // namespace ddprun::trainer
