#include "worker/parallel/context/context_group.h"

#include <utility>

#include "common/error.h"
#include "worker/parallel/context/zigzag.h"
#include "worker/parallel/group_tensors.h"
#include "worker/tensor/kernels.h"

namespace ddprun {

template <class Collective>
void ContextGroup::run(std::size_t bytes, Collective collective) {
  const auto start = std::chrono::steady_clock::now();
  collective();
  waited_ += std::chrono::steady_clock::now() - start;
  bytes_ += bytes;
}

Tensor ContextGroup::gather_positions(const Tensor& given) {
  const Tensor own = given.contiguous();
  Shape shape = own.shape(), by_rank = own.shape();
  shape[1] *= size();
  by_rank[0] *= size();
  Tensor parts = Tensor::empty(by_rank, own.dtype(), own.device()),
         all = Tensor::empty(shape, own.dtype(), own.device());
  run(own.bytes() * static_cast<std::size_t>(size() - 1),
      [&] { group_.allgather(span_of_tensor(own), span_of_tensor(parts), {.blocking = true}); });
  for (int rank = 0; rank < size(); ++rank)
    put_positions(parts.slice(0, rank * own.size(0), own.size(0)), 1, rank, size(), all);
  return all;
}

Tensor ContextGroup::sum_positions(const Tensor& all) {
  Shape shape = all.shape(), by_rank = all.shape();
  shape[1] /= size();
  by_rank[0] *= size();
  by_rank[1] = shape[1];
  Tensor parts = Tensor::empty(by_rank, all.dtype(), all.device()),
         sum = Tensor::empty(shape, all.dtype(), all.device());
  for (int rank = 0; rank < size(); ++rank) {
    Tensor part = parts.slice(0, rank * shape[0], shape[0]);
    kernels::copy(own_positions(all, 1, rank, size()), part);
  }
  run(sum.bytes() * static_cast<std::size_t>(size() - 1),
      [&] { group_.reduce_scatter(span_of_tensor(parts), span_of_tensor(sum), ReduceOp::sum, {.blocking = true}); });
  return sum;
}

RingShift::RingShift(ContextGroup& group, const Tensor& tensor, Kind kind)
    : group_(group), sent_(tensor), received_(Tensor::empty_like(tensor)) {
  const int tag = static_cast<int>(kind), size = group.size();
  receive_ = group.group().recv(span_of_tensor(received_), (group.rank() + size - 1) % size, tag);
  try {
    send_ = group.group().send(span_of_tensor(sent_), (group.rank() + 1) % size, tag);
  } catch (...) {
    abandon();
    throw;
  }
  group.bytes_ += tensor.bytes();
}

RingShift::~RingShift() {
  if (receive_) abandon();
}

// Returns once the group no longer uses the memory of the tensors.
void RingShift::abandon() {
  group_.group().abort("attention ended before its ring did");
  for (const WorkPtr& work : {receive_, send_}) {
    try {
      if (work) work->wait();
    } catch (const Error&) {
      // The one that ended the ring has another error.
    }
  }
}

Tensor RingShift::take() {
  const auto start = std::chrono::steady_clock::now();
  receive_->wait();
  send_->wait();
  group_.waited_ += std::chrono::steady_clock::now() - start;
  receive_ = nullptr;
  return std::move(received_);
}

}  // namespace ddprun
