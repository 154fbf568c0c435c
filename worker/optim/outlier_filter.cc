#include "worker/optim/outlier_filter.h"

#include <algorithm>
#include <cmath>

#include "worker/tensor/step_rules.h"

namespace ddprun::optim {

bool OutlierFilter::note(double norm) {
  const bool outlier = kernels::is_outlier(norm, std::ssize(norms_), median(), factor_);
  if (!std::isfinite(norm)) return outlier;
  if (std::ssize(norms_) == kernels::norm_window) norms_.erase(norms_.begin());
  norms_.push_back(norm);
  return outlier;
}

double OutlierFilter::median() const {
  if (norms_.empty()) return 0;
  auto sorted = norms_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2 == 1) return *middle;
  return (*std::max_element(sorted.begin(), middle) + *middle) / 2;
}

}  // namespace ddprun::optim
