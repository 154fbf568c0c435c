#pragma once

#include <optional>

#include "worker/tokenizer/byte_pairs.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Loads the encoding in data.tokenizer; none without that key. Throws Errc::usage naming the key and the file.
std::optional<tokenizer::BytePairs> byte_pairs_of(const TrainConfig::Data& data);

}  // namespace ddprun::trainer
