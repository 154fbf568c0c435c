#include "worker/nn/random_scope.h"

#include <initializer_list>
#include <utility>

#include "common/error.h"

namespace ddprun::nn {
namespace {

thread_local const SampleKeys* current_keys = nullptr;

// SplitMix64's output function (Steele, Lea and Flood 2014).
std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t hash_of(std::initializer_list<std::uint64_t> words) {
  std::uint64_t state = 0x9e3779b97f4a7c15ULL;
  for (const std::uint64_t word : words) state = mixed(state ^ word) + 0x9e3779b97f4a7c15ULL;
  return mixed(state);
}

// FNV-1a, 64 bits.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

RandomScope::RandomScope(SampleKeys keys) : RandomScope(std::make_shared<const SampleKeys>(std::move(keys))) {}
RandomScope::RandomScope(std::shared_ptr<const SampleKeys> keys)
    : keys_(std::move(keys)), before_(std::exchange(current_keys, keys_.get())) {}
RandomScope::~RandomScope() {
  current_keys = before_;
}

autograd::ContextScope::Maker RandomScope::maker() const {
  return [keys = keys_] { return std::shared_ptr<RandomScope>(new RandomScope(keys)); };
}

const SampleKeys* RandomScope::current() {
  return current_keys;
}

std::vector<std::uint64_t> streams_of_rows(const SampleKeys& keys, const std::string& layer, std::int64_t rows) {
  const auto samples = static_cast<std::int64_t>(keys.samples.size());
  if (samples == 0 || rows % samples != 0) {
    throw make_error(Errc::mismatch, "dropout: {} rows for a batch of {} samples", rows, samples);
  }
  const std::int64_t positions = rows / samples;
  const std::uint64_t layer_hash = hash_of(layer);
  std::vector<std::uint64_t> streams;
  streams.reserve(static_cast<std::size_t>(rows));
  for (const std::int64_t sample : keys.samples)
    for (std::int64_t position = 0; position < positions; ++position)
      streams.push_back(hash_of({layer_hash, static_cast<std::uint64_t>(keys.epoch), static_cast<std::uint64_t>(sample),
                                 static_cast<std::uint64_t>(position)}));
  return streams;
}

}  // namespace ddprun::nn
