#include "worker/autograd/cast_place.h"

#include "worker/tensor/kernels.h"

namespace ddprun::autograd {

Tensor CastPlace::cast(const Tensor& leaf, DType dtype) {
  if (!copy_.defined() || copy_.dtype() != dtype || copy_.shape() != leaf.shape()) {
    take_away();
    copy_ = Tensor::wrap(memory_.get(), leaf.shape(), dtype, memory_);
  }
  if (!present_ || !is_copy_of(leaf)) make(leaf);
  return copy_;
}

void CastPlace::take_away() {
  present_ = false;
  if (copy_.defined()) copy_.storage()->set_present(false);
}

void CastPlace::bring_back(const Tensor& leaf) {
  const bool has_other_user = copy_.defined() && copy_.storage().use_count() > 1;
  if (has_other_user) make(leaf);
}

bool CastPlace::is_copy_of(const Tensor& leaf) const {
  return storage_ == leaf.storage().get() && version_ == leaf.version();
}

// A copy of unchanged contents has the same bits, so that tapes that refer to it stay valid.
void CastPlace::make(const Tensor& leaf) {
  if (!is_copy_of(leaf)) copy_.storage()->bump_version();
  storage_ = leaf.storage().get();
  version_ = leaf.version();
  kernels::of(leaf).cast_all({leaf}, {copy_});
  copy_.storage()->set_present(true);
  present_ = true;
}

}  // namespace ddprun::autograd
