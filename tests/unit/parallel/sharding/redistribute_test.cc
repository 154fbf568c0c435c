#include "worker/parallel/sharding/redistribute.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/unit/parallel/sharding/seeded_redistributions.h"

using namespace ddprun;
using namespace ddprun::sharding;
using namespace ddprun::testing;

namespace {

constexpr std::byte untouched{0xee};

// Returns the byte at this offset of a whole tensor.
std::byte value(std::size_t tensor, std::int64_t byte) {
  return static_cast<std::byte>((static_cast<std::int64_t>(tensor) * 37 + byte * 11 + byte / 251) % 223);
}

std::int64_t width(const TensorSpec& spec) {
  return static_cast<std::int64_t>(size_of(spec.dtype));
}

// Returns a rank's part of a tensor in a layout, filled except for padding; empty without a rank.
std::vector<std::byte> part(const Redistribution& given, const StateLayout& layout, std::size_t tensor, int rank) {
  if (rank == absent) return {};
  const PlacedTensor placed(given.tensors[tensor], layout.placements[tensor]);
  std::vector<std::byte> bytes(static_cast<std::size_t>(placed.local_bytes(rank)), untouched);
  const std::int64_t size = width(placed.spec());
  for (const HeldRange& range : placed.held(rank))
    for (std::int64_t b = 0; b < range.whole.count() * size; ++b)
      bytes[static_cast<std::size_t>(range.local * size + b)] = value(tensor, range.whole.begin * size + b);
  return bytes;
}

// Moves this process' parts, and throws unless it then has the parts that it should have.
void move_and_check(const Redistribution& given, ProcessGroup& group) {
  const std::size_t tensors = given.tensors.size();
  const int before = rank_of(given.from, group.rank()), after = rank_of(given.to, group.rank());
  std::vector<std::vector<std::byte>> old_parts, new_parts, expected;
  std::vector<ConstSpan> from;
  std::vector<Span> to;
  for (std::size_t t = 0; t < tensors; ++t) {
    const DType dtype = given.tensors[t].dtype;
    old_parts.push_back(part(given, given.from, t, before));
    expected.push_back(part(given, given.to, t, after));
    new_parts.emplace_back(expected.back().size(), untouched);
    from.push_back({old_parts.back().data(), old_parts.back().size() / size_of(dtype), dtype});
    to.push_back({new_parts.back().data(), new_parts.back().size() / size_of(dtype), dtype});
  }
  const auto read = [&](const Transfer& transfer, Span into) {
    const auto file = part(given, *given.files, transfer.tensor, transfer.file);
    std::memcpy(into.data, file.data() + transfer.read_offset * width(given.tensors[transfer.tensor]), into.bytes());
  };
  redistribute(given, plan_redistribution(given, group.rank()), from, to, group, read);
  if (new_parts != expected) throw std::runtime_error("other contents");
}

}  // namespace

TEST_CASE("after a redistribution each rank has the contents that it is to have") {
  int moved = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Redistribution given = seeded_redistribution(seed, 8);
    if (!plan_redistribution(given, 0).missing.empty()) continue;
    const int processes = std::max(2, processes_of(given));
    INFO("seed " << seed);
    REQUIRE_NOTHROW(run_ranks(processes, [&](ProcessGroup& group) { move_and_check(given, group); }));
    ++moved;
  }
  CHECK(moved > 100);
}

TEST_CASE("what nobody has is named before anything is sent") {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"tensor", 2}}, 2);
  const Placement halves{.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0}}};
  const Redistribution given{
      .tensors = {{"fc1.weight", {4, 2}}}, .from = {{halves}, {0, absent}}, .to = {{Placement{.mesh = mesh}}}};
  CHECK_THROWS_WITH(run_ranks(2, [&](ProcessGroup& group) { move_and_check(given, group); }),
                    "no rank and no file has elements 4 to 7 of fc1.weight");
}

TEST_CASE("a file that cannot be read ends the redistribution at all ranks") {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"tensor", 2}}, 2);
  const Placement whole{.mesh = mesh};
  const Redistribution given{.tensors = {{"w", {4}}},
                             .from = {{whole}, {absent, absent}},
                             .to = {{whole}},
                             .files = StateLayout{{whole}, {0, absent}}};
  std::vector<int> failed(2);
  run_ranks(2, [&](ProcessGroup& group) {
    std::vector<float> values(4);
    try {
      redistribute(given, plan_redistribution(given, group.rank()), {{}}, {span_of(values)}, group,
                   [](const Transfer&, Span) { throw std::runtime_error("no such file"); });
    } catch (const std::exception&) {
      failed[static_cast<std::size_t>(group.rank())] = 1;
    }
  });
  CHECK(failed == std::vector<int>{1, 1});
}

TEST_CASE("memory that is too small for its layout is refused before anything is sent, and ends all ranks") {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"tensor", 2}}, 2);
  const Placement halves{.mesh = mesh, .shards = {{.axis = "tensor", .dimension = 0}}};
  const Redistribution given{.tensors = {{"w", {4}}}, .from = {{halves}}, .to = {{Placement{.mesh = mesh}}}};
  std::vector<std::string> errors(2);
  run_ranks(2, [&](ProcessGroup& group) {
    std::vector<float> half(2), whole(group.rank() == 0 ? 3 : 4);
    try {
      redistribute(given, plan_redistribution(given, group.rank()), {span_of(half)}, {span_of(whole)}, group);
    } catch (const std::exception& error) {
      errors[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  CHECK(errors[0] == "this rank's part of w has 3 float32, its layout at least 4 float32");
  CHECK_FALSE(errors[1].empty());
}
