#include "worker/trainer/session/replicas.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "common/error.h"
#include "common/host_port.h"
#include "worker/comm/collectives.h"
#include "worker/digest/crc32c.h"
#include "worker/digest/sha256.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t crc_bytes = sizeof(std::uint32_t);

// REQUIRES: memory of the host.
std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), tensor.bytes()};
}

// The copies that the ranks of a group have in common.
struct Copies {
  ProcessGroup* group = nullptr;
  std::vector<std::string> names;
  std::vector<Tensor> values;
};

std::vector<Copies> copies_by_group(const VisitReplicas& visit) {
  std::vector<Copies> all;
  visit([&](ProcessGroup& group, const std::string& name, const Tensor& value) {
    if (group.size() == 1) return;
    auto found = std::ranges::find(all, &group, &Copies::group);
    if (found == all.end()) found = all.insert(all.end(), {.group = &group, .names = {}, .values = {}});
    found->names.push_back(name);
    found->values.push_back(value);
  });
  return all;
}

// Returns one digest a parameter, of the bytes that lie in the range; 0 stands for none.
std::vector<std::uint32_t> digests_of(const Copies& copies, ReplicaRange range) {
  std::size_t total = 0;
  for (const auto& value : copies.values) total += value.bytes();
  const auto bound = [&](std::int64_t index) {
    return total / static_cast<std::size_t>(range.ranges) * static_cast<std::size_t>(index);
  };
  const std::size_t begin = bound(range.index);
  const std::size_t end = range.index + 1 == range.ranges ? total : bound(range.index + 1);
  std::vector<std::uint32_t> digests;
  std::size_t position = 0;
  for (const auto& value : copies.values) {
    const Tensor on_host = value.to(Device{});
    const auto bytes = bytes_of(on_host);
    const std::size_t from = std::clamp(begin, position, position + bytes.size()) - position;
    const std::size_t to = std::clamp(end, position, position + bytes.size()) - position;
    digests.push_back(crc32c(bytes.subspan(from, to - from)));
    position += bytes.size();
  }
  return digests;
}

// Returns each rank's text of so many characters.
std::vector<std::string> gather(ProcessGroup& group, std::string_view own) {
  const std::vector<std::uint8_t> mine(own.begin(), own.end());
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.allgather(span_of(mine), span_of(all), {.blocking = true});
  std::vector<std::string> texts;
  for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(mine.size()))
    texts.emplace_back(at, at + static_cast<std::ptrdiff_t>(mine.size()));
  return texts;
}

std::string_view characters(const std::uint32_t* digests, std::size_t count) {
  return {reinterpret_cast<const char*>(digests), count * crc_bytes};
}

// Returns the first parameter whose digest is not the same at all ranks.
std::size_t first_that_differs(const std::vector<std::string>& ranks) {
  std::size_t first = ranks[0].size();
  for (const auto& digests : ranks)
    first = std::min(first, static_cast<std::size_t>(std::ranges::mismatch(digests, ranks[0]).in1 - digests.begin()));
  return first / crc_bytes;
}

// where: completes "the parameters ... differ". Collective.
Error failure_of(ProcessGroup& group, const std::vector<std::size_t>& suspects, int rank, const std::string& when,
                 const std::string& where) {
  const auto own = fmt::format("rank {} on host {}", rank, local_host_name());
  const auto all = all_gather_bytes(group, own);
  std::vector<std::string> names;
  for (const auto suspect : suspects) names.push_back(all[suspect]);
  if (names.size() == all.size())
    return make_error(Errc::mismatch, "{} the parameters of {} differ{}: silent data corruption at one of them", when,
                      fmt::join(names, " and "), where);
  return make_error(
      Errc::mismatch, "{} the parameters of {} differ from those of {} other rank{}{}: silent data corruption", when,
      fmt::join(names, " and "), all.size() - names.size(), all.size() - names.size() == 1 ? "" : "s", where);
}

std::optional<Error> check(const Copies& copies, int rank, std::int64_t step, ReplicaRange range) {
  const auto digests = digests_of(copies, range);
  const auto own = crc32c(std::as_bytes(std::span(digests)));
  const auto suspects = outvoted(gather(*copies.group, characters(&own, 1)));
  if (suspects.empty()) return std::nullopt;
  const auto of_parameters = gather(*copies.group, characters(digests.data(), digests.size()));
  return failure_of(*copies.group, suspects, rank, fmt::format("after step {}", step),
                    fmt::format(", first in {}", copies.names[first_that_differs(of_parameters)]));
}

}  // namespace

std::string parameter_digest(const nn::Module& model) {
  Sha256 hash;
  for (const auto& [name, parameter] : model.named_parameters()) hash.update(bytes_of(parameter.value().to(Device{})));
  return hash.hex();
}

std::string parameter_digest(const VisitParameters& visit) {
  Sha256 hash;
  visit([&](const std::string&, const Tensor& value) { hash.update(bytes_of(value.to(Device{}))); });
  return hash.hex();
}

void check_replicas(const VisitReplicas& visit, int rank, std::int64_t step, ReplicaRange range) {
  // All groups compare before any rank throws, since others wait for it.
  std::optional<Error> first;
  for (const auto& copies : copies_by_group(visit))
    if (auto error = check(copies, rank, step, range); error && !first) first = std::move(error);
  if (first) throw Error(*first);
}

void check_digest(const std::string& digest, ProcessGroup& group) {
  if (group.size() == 1) return;
  const auto suspects = outvoted(gather(group, digest));
  if (!suspects.empty()) throw failure_of(group, suspects, group.rank(), "at the end", "");
}

std::vector<std::size_t> outvoted(std::span<const std::string> values) {
  std::vector<std::size_t> others(values.size());
  std::iota(others.begin(), others.end(), std::size_t{0});
  for (const auto& candidate : values) {
    const auto votes = static_cast<std::size_t>(std::ranges::count(values, candidate));
    if (2 * votes <= values.size()) continue;
    std::erase_if(others, [&](std::size_t each) { return values[each] == candidate; });
    break;
  }
  return others;
}

}  // namespace ddprun::trainer
