#pragma once

namespace ddprun::onednn {

// With how many threads oneDNN computes what the calling thread asks for. At first as many as OMP_NUM_THREADS says, or
// as there are processors.
int threads();
void set_threads(int count);

}  // namespace ddprun::onednn
