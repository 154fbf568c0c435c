#pragma once

#include <optional>

#include "ddprun/worker/tokenizer/byte_pairs.h"
#include "ddprun/worker/trainer/train_config.h"

namespace ddprun::trainer {

// The encoding in data.tokenizer; none without that key. Throws Errc::usage naming the key and the file.
std::optional<tokenizer::BytePairs> byte_pairs_of(const TrainConfig::Data& data);

// "ddprun-worker tokenize": learns tokenize.vocabulary tokens from the training part of input.txt in data.dir, writes
// them into data.tokenizer, and a line about them to standard output. Throws Errc::usage for data other than text and
// without that folder.
void tokenize(const TrainConfig& config);

}  // namespace ddprun::trainer
