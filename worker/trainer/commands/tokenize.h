#pragma once

#include "ddprun/worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// "ddprun-worker tokenize": learns tokenize.vocabulary tokens from the training part of input.txt in data.dir, writes
// them into data.tokenizer, and a line about them to standard output. Throws Errc::usage for data other than text and
// without that folder.
void tokenize(const TrainConfig& config);

}  // namespace ddprun::trainer
