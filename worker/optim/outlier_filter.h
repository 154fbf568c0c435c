#pragma once

#include <utility>
#include <vector>

namespace ddprun::optim {

// Finds steps whose gradient norm is far above the last kernels::norm_window norms. A pure function of the norms: ranks
// with the same gradients decide alike. Copies are independent. Threads: one at a time.
class OutlierFilter {
 public:
  // factor: multiplies the median of the last norms.
  explicit OutlierFilter(double factor) : factor_(factor) {}

  // Returns whether the norm is above factor times the median, or not finite; it then counts among the last norms if it
  // is finite, so that gradients that stay large are accepted at last. Returns false within the first norms.
  bool note(double norm);
  // Returns the median of the last norms; 0 if there is none.
  double median() const;

  // The norms from the oldest to the newest, at most kernels::norm_window: a run that resumes has to restore them.
  const std::vector<double>& norms() const { return norms_; }
  void set_norms(std::vector<double> norms) { norms_ = std::move(norms); }
  double factor() const { return factor_; }

 private:
  double factor_;
  std::vector<double> norms_;
};

}  // namespace ddprun::optim
