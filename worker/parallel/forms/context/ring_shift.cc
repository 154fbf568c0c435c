#include "worker/parallel/forms/context/ring_shift.h"

#include <utility>

#include "common/error.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun {

RingShift::RingShift(CountedGroup& group, const Tensor& tensor, Kind kind)
    : group_(group), sent_(tensor), received_(Tensor::empty_like(tensor)) {
  const int tag = static_cast<int>(kind), size = group.size();
  receive_ = group.group().recv(span_of_tensor(received_), (group.rank() + size - 1) % size, tag);
  try {
    send_ = group.group().send(span_of_tensor(sent_), (group.rank() + 1) % size, tag);
  } catch (...) {
    abandon();
    throw;
  }
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
  group_.run(sent_.bytes(), [this] {
    receive_->wait();
    send_->wait();
  });
  receive_ = nullptr;
  return std::move(received_);
}

}  // namespace ddprun
