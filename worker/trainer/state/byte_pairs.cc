#include "worker/trainer/state/byte_pairs.h"

#include "common/error.h"

namespace ddprun::trainer {

std::optional<tokenizer::BytePairs> byte_pairs_of(const TrainConfig::Data& data) {
  if (data.tokenizer.empty()) return std::nullopt;
  try {
    return tokenizer::load_byte_pairs(data.tokenizer);
  } catch (const Error& e) {
    throw make_error(Errc::usage, "data.tokenizer = {}: {}", data.tokenizer.string(), e.what());
  }
}

}  // namespace ddprun::trainer
