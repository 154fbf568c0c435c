#include "ddprun/worker/trainer/replicas.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/digest/sha256.h"

namespace ddprun::trainer {
namespace {

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), tensor.bytes()};
}

struct Digests {
  std::vector<std::uint8_t> digests;  // one a parameter, back to back
  std::vector<std::string> names;
};

Digests digests_of(const VisitParameters& visit) {
  Digests all;
  visit([&](const std::string& name, const Tensor& value) {
    Sha256 hash;
    hash.update(bytes_of(value));
    const auto hex = hash.hex();
    all.digests.insert(all.digests.end(), hex.begin(), hex.end());
    all.names.push_back(name);
  });
  return all;
}

}  // namespace

std::string parameter_digest(const nn::Module& model) {
  Sha256 hash;
  for (const auto& [name, parameter] : model.named_parameters()) hash.update(bytes_of(parameter.value()));
  return hash.hex();
}

std::string parameter_digest(const VisitParameters& visit) {
  Sha256 hash;
  visit([&](const std::string&, const Tensor& value) { hash.update(bytes_of(value)); });
  return hash.hex();
}

void check_replicas(const VisitParameters& visit, ProcessGroup& group, std::int64_t step) {
  constexpr std::size_t digest_size = 64;
  auto [own, names] = digests_of(visit);
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(group.size()));
  group.allgather(span_of(own), span_of(all))->wait();
  std::vector<int> differing;
  std::size_t first = own.size();
  for (int rank = 1; rank < group.size(); ++rank) {
    const auto* other = all.data() + own.size() * static_cast<std::size_t>(rank);
    const auto at = static_cast<std::size_t>(std::mismatch(other, other + own.size(), all.data()).first - other);
    if (at == own.size()) continue;
    differing.push_back(rank);
    first = std::min(first, at);
  }
  if (differing.empty()) return;
  throw make_error(Errc::mismatch, "after step {} the parameters of rank{} {} differ from rank 0's, first in {}", step,
                   differing.size() == 1 ? "" : "s", fmt::join(differing, ", "), names[first / digest_size]);
}

}  // namespace ddprun::trainer
