#pragma once

namespace ddprun::trainer {

// FLOP/s of a large matrix product in float32 on this rank's threads: the best of some, which take about 0.1 s.
double measure_peak_flops();

}  // namespace ddprun::trainer
