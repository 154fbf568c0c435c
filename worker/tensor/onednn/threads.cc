#include "ddprun/worker/tensor/onednn/threads.h"

// Each compiler has an omp.h for its own runtime; the distributions' oneDNN has GNU's.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace ddprun::onednn {

int threads() {
  return omp_get_max_threads();
}

void set_threads(int count) {
  omp_set_num_threads(count);
}

}  // namespace ddprun::onednn
