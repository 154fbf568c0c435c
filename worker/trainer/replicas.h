#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/parallel/data_parallelism.h"

namespace ddprun::trainer {

// SHA-256 over the bytes of all parameters in the model's order: two runs with the same digest have the same parameters
// to the last bit.
std::string parameter_digest(const nn::Module& model);
// The same of parameters that may be divided among the ranks. Collective. visit: Session::visit_parameters() or
// DataParallelism::visit_parameters().
using VisitParameters = std::function<void(const DataParallelism::Visitor& visitor)>;
std::string parameter_digest(const VisitParameters& visit);

// Compares the parameters of all ranks bit for bit. Throws Errc::mismatch at every rank, naming the step, the ranks
// that differ from rank 0 and the first parameter in which they do. Collective.
void check_replicas(const VisitParameters& visit, ProcessGroup& group, std::int64_t step);

}  // namespace ddprun::trainer
