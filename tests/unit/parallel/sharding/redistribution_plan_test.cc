#include "worker/parallel/sharding/redistribution_plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/sharding/seeded_redistributions.h"

using namespace ddprun;
using namespace ddprun::sharding;
using namespace ddprun::testing;

namespace {

// The index of each element of a tensor in the part that a rank has of it; -1 for elements that the rank does not have.
using Places = std::vector<std::int64_t>;
Places places(const Redistribution& given, const StateLayout& layout, std::size_t tensor, int rank) {
  Places all(static_cast<std::size_t>(given.tensors[tensor].elements()), -1);
  if (rank == absent) return all;
  const PlacedTensor placed(given.tensors[tensor], layout.placements[tensor]);
  for (const HeldRange& range : placed.held(rank))
    for (std::int64_t i = 0; i < range.whole.count(); ++i)
      all[static_cast<std::size_t>(range.whole.begin + i)] = range.local + i;
  return all;
}

// These are by tensor and process, and by tensor and rank.
using AllPlaces = std::vector<std::vector<Places>>;
AllPlaces places_by_process(const Redistribution& given, const StateLayout& layout, int processes) {
  AllPlaces all(given.tensors.size());
  for (std::size_t t = 0; t < all.size(); ++t)
    for (int p = 0; p < processes; ++p) all[t].push_back(places(given, layout, t, rank_of(layout, p)));
  return all;
}
AllPlaces places_in_files(const Redistribution& given) {
  AllPlaces all(given.tensors.size());
  if (!given.files) return all;
  for (std::size_t t = 0; t < all.size(); ++t)
    for (int r = 0; r < std::ssize(given.files->processes); ++r) all[t].push_back(places(given, *given.files, t, r));
  return all;
}

// The least that the busiest process can send, whatever the plan. The processes that can have a set of elements send
// its cost, so their average is a bound, for every set of processes: once for each wanted element by those that have it
// from the start, and once for each element and process that wants it by those that have it at any time.
class LeastMaximum {
 public:
  explicit LeastMaximum(int processes) : processes_(processes), first_(1U << processes), all_(1U << processes) {}

  void add(unsigned have, unsigned want, double bytes) {
    want &= ~have;
    if (want == 0) return;
    first_[have] += bytes;
    all_[have | want] += bytes * std::popcount(want);
  }
  double value() const { return std::max(bound(first_), bound(all_)); }

 private:
  double bound(std::vector<double> demand) const {
    for (int p = 0; p < processes_; ++p)
      for (unsigned set = 0; set < demand.size(); ++set)
        if ((set >> p & 1U) != 0) demand[set] += demand[set ^ 1U << p];
    double most = 0;
    for (unsigned set = 1; set < demand.size(); ++set) most = std::max(most, demand[set] / std::popcount(set));
    return most;
  }

  int processes_;
  std::vector<double> first_, all_;  // key: a set of processes
};

// Returns the process that reads a rank's file, as a set, if the file has the element.
unsigned reader_of(const Redistribution& given, std::size_t rank, std::int64_t place) {
  const int process = given.files->processes[rank];
  return process == absent || place < 0 ? 0U : 1U << process;
}

// Checks the plans of all processes: they agree, an element arrives once where it is wanted and is read where it is by
// then, missing elements are missing, and the busiest sender sends at most twice its bound. Returns that ratio.
double check_plans(const Redistribution& given) {
  const int processes = processes_of(given);
  const AllPlaces from = places_by_process(given, given.from, processes);
  const AllPlaces to = places_by_process(given, given.to, processes);
  const AllPlaces in_files = places_in_files(given);
  std::vector<RedistributionPlan> plans;
  for (int p = 0; p < processes; ++p) plans.push_back(plan_redistribution(given, p));

  // Both ends of a transfer have the same data about it.
  std::map<std::tuple<std::size_t, int, std::int64_t, std::int64_t, int, int>, std::vector<Transfer>> ends;
  for (const auto& plan : plans) {
    REQUIRE(plan.missing == plans[0].missing);
    for (const Transfer& t : plan.transfers)
      ends[{t.tensor, t.step, t.range.begin, t.range.end, t.source, t.destination}].push_back(t);
  }
  std::vector<Transfer> transfers;
  for (const auto& [key, same] : ends) {
    REQUIRE(same.size() == (same[0].source == same[0].destination ? 1U : 2U));
    REQUIRE(same.front() == same.back());
    transfers.push_back(same[0]);
  }

  // The step after which an element is there, by tensor, process and element.
  std::vector<std::vector<std::vector<int>>> arrived(given.tensors.size());
  for (std::size_t t = 0; t < arrived.size(); ++t)
    arrived[t].assign(static_cast<std::size_t>(processes),
                      std::vector<int>(static_cast<std::size_t>(given.tensors[t].elements()), absent));
  std::vector<double> sent(static_cast<std::size_t>(processes));
  std::ranges::stable_sort(transfers, {}, &Transfer::step);
  for (const Transfer& t : transfers) {
    const auto source = static_cast<std::size_t>(t.source), destination = static_cast<std::size_t>(t.destination);
    if (t.source != t.destination)
      sent[source] +=
          static_cast<double>(t.range.count()) * static_cast<double>(size_of(given.tensors[t.tensor].dtype));
    for (std::int64_t i = t.range.begin; i < t.range.end; ++i) {
      const auto e = static_cast<std::size_t>(i);
      const std::int64_t shift = i - t.range.begin;
      REQUIRE(t.write_offset + shift == to[t.tensor][destination][e]);
      REQUIRE(arrived[t.tensor][destination][e] == absent);
      arrived[t.tensor][destination][e] = t.step;
      if (t.file != absent) {
        REQUIRE(t.step == 0);
        REQUIRE(given.files->processes[static_cast<std::size_t>(t.file)] == t.source);
        REQUIRE(in_files[t.tensor][static_cast<std::size_t>(t.file)][e] == t.read_offset + shift);
      } else if (t.step == 0) {
        REQUIRE(t.read_offset + shift == from[t.tensor][source][e]);
        REQUIRE(from[t.tensor][source][e] >= 0);
      } else {
        REQUIRE(t.read_offset + shift == to[t.tensor][source][e]);
        REQUIRE(arrived[t.tensor][source][e] != absent);
        REQUIRE(arrived[t.tensor][source][e] < t.step);
      }
    }
  }

  std::set<std::pair<std::size_t, std::int64_t>> missing;
  for (const MissingRange& range : plans[0].missing)
    for (std::int64_t i = range.range.begin; i < range.range.end; ++i) missing.emplace(range.tensor, i);
  LeastMaximum least(processes);
  double largest_element = 0;
  for (std::size_t t = 0; t < given.tensors.size(); ++t) {
    const auto bytes = static_cast<double>(size_of(given.tensors[t].dtype));
    largest_element = std::max(largest_element, bytes);
    for (std::size_t e = 0; e < static_cast<std::size_t>(given.tensors[t].elements()); ++e) {
      unsigned have = 0, in_file = 0, want = 0;
      for (int p = 0; p < processes; ++p) {
        have |= from[t][static_cast<std::size_t>(p)][e] >= 0 ? 1U << p : 0U;
        want |= to[t][static_cast<std::size_t>(p)][e] >= 0 ? 1U << p : 0U;
      }
      for (std::size_t r = 0; have == 0 && r < in_files[t].size(); ++r)
        in_file |= reader_of(given, r, in_files[t][r][e]);
      have |= in_file;
      const bool is_missing = missing.contains({t, static_cast<std::int64_t>(e)});
      REQUIRE(is_missing == (have == 0 && want != 0));
      for (int p = 0; p < processes; ++p)
        REQUIRE((arrived[t][static_cast<std::size_t>(p)][e] != absent) == ((want >> p & 1U) != 0 && !is_missing));
      if (have != 0) least.add(have, want, bytes);
    }
  }
  const double busiest = *std::ranges::max_element(sent);
  // Elements are not divided: a process may send one more of each tensor than its share.
  const double rounding = largest_element * static_cast<double>(given.tensors.size());
  INFO("the busiest sends " << busiest << " bytes, and has to send " << least.value());
  REQUIRE(busiest <= 2 * least.value() + rounding);
  return least.value() == 0 ? 0 : busiest / least.value();
}

void check_seeds(std::uint64_t first, std::uint64_t last, int ranks) {
  for (std::uint64_t seed = first; seed < last; ++seed) {
    INFO("seed " << seed);
    check_plans(seeded_redistribution(seed, ranks));
  }
}

// Returns each layout of this many ranks that a tensor can have: all meshes, with each kind of placement on their axes.
std::vector<Placement> every_placement(const TensorSpec& spec, int ranks) {
  std::vector<Placement> all;
  for (int pipeline = 1; pipeline <= ranks; ++pipeline)
    for (int shard = 1; shard <= ranks; ++shard)
      for (int tensor = 1; tensor <= ranks; ++tensor) {
        if (ranks % (pipeline * shard * tensor) != 0) continue;
        const auto mesh = std::make_shared<const MeshShape>(
            std::vector<MeshAxis>{
                {"pipeline", pipeline}, {"replicate", mesh_rest}, {"shard", shard}, {"tensor", tensor}},
            ranks);
        for (const std::size_t dimension : {0U, 1U}) {
          Placement sliced{.mesh = mesh};
          if (pipeline > 1) sliced.stage = Stage{{pipeline - 1}};
          sliced.shards = {{.axis = "tensor", .dimension = dimension}};
          all.push_back(sliced);
          const auto bucket = std::make_shared<const BucketLayout>(plan_bucket_layout({{spec, sliced}}));
          sliced.local = FlatShard{{"shard"}, bucket, 0};
          all.push_back(sliced);
          sliced.local = Owner{"shard", shard - 1};
          all.push_back(sliced);
        }
      }
  return all;
}

void check_pairs(int ranks, std::size_t stride) {
  const TensorSpec spec{"w", {6, 12}};
  std::vector<Placement> all;
  for (int r = 1; r <= ranks; ++r)
    for (auto& placement : every_placement(spec, r)) all.push_back(std::move(placement));
  for (std::size_t pair = 0; pair < all.size() * all.size(); pair += stride) {
    INFO("pair " << pair);
    check_plans({.tensors = {spec}, .from = {{all[pair / all.size()]}}, .to = {{all[pair % all.size()]}}});
  }
}

const auto line = [](int ranks) {
  return std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"tensor", ranks}}, ranks);
};

}  // namespace

TEST_CASE("every element arrives once between any two layouts") {
  check_pairs(4, 7);
  check_pairs(8, 97);
}

TEST_CASE("every element arrives once between seeded layouts with lost processes and checkpoint files") {
  check_seeds(0, 500, 8);
  check_seeds(0, 300, 16);
}

TEST_CASE("every element arrives once between all pairs of layouts to 8 ranks", "[.nightly]") {
  check_pairs(8, 1);
}

TEST_CASE("every element arrives once between 5,000 seeded pairs of layouts to 16 ranks", "[.nightly]") {
  check_seeds(0, 5000, 16);
}

TEST_CASE("what stays where it is is not sent") {
  const Placement halves{.mesh = line(2), .shards = {{.axis = "tensor", .dimension = 0}}};
  const auto plan = plan_redistribution({.tensors = {{"w", {8}}}, .from = {{halves}}, .to = {{halves}}}, 1);
  CHECK(plan.transfers == std::vector<Transfer>{{.range = {4, 8}, .source = 1, .destination = 1}});
}

TEST_CASE("holders of copies share what a newcomer wants") {
  const Placement before{.mesh = line(4)}, after{.mesh = line(5)};
  const Redistribution given{.tensors = {{"w", {1000}}}, .from = {{before}}, .to = {{after}}};
  std::map<int, std::int64_t> sent;
  for (const Transfer& t : plan_redistribution(given, 4).transfers) sent[t.source] += t.range.count();
  REQUIRE(sent.size() == 4);
  for (const auto& [source, elements] : sent) CHECK(elements <= 400);
}

TEST_CASE("receivers pass on what several want") {
  const Placement before{.mesh = line(1)}, after{.mesh = line(8)};
  const Redistribution given{.tensors = {{"w", {8000}}}, .from = {{before}}, .to = {{after}}};
  for (int p = 0; p < 8; ++p) {
    std::int64_t sent = 0;
    for (const Transfer& t : plan_redistribution(given, p).transfers)
      if (t.source == p && t.destination != p) sent += t.range.count();
    CHECK(sent > 0);
    CHECK(sent <= 16000);
  }
}

TEST_CASE("a file is read for what no living process has, and what is in neither is named") {
  const Placement halves{.mesh = line(2), .shards = {{.axis = "tensor", .dimension = 0}}};
  const Placement whole{.mesh = line(1)};
  Redistribution given{.tensors = {{"w", {8}}}, .from = {{halves}, {0, absent}}, .to = {{whole}}};
  CHECK(plan_redistribution(given, 0).missing == std::vector<MissingRange>{{0, {4, 8}}});
  const Placement quarters{.mesh = line(4), .shards = {{.axis = "tensor", .dimension = 0}}};
  given.files = StateLayout{{quarters}, {0, 0, 0, absent}};
  const auto plan = plan_redistribution(given, 0);
  CHECK(plan.missing == std::vector<MissingRange>{{0, {6, 8}}});
  REQUIRE(plan.transfers.size() == 2);
  CHECK(plan.transfers[0].file == absent);
  CHECK(plan.transfers[1] == Transfer{.range = {4, 6}, .file = 2, .write_offset = 4});
}

TEST_CASE("a redistribution whose parts do not fit each other is refused") {
  const Placement whole{.mesh = line(2)};
  const auto refuse = [](const Redistribution& given) { plan_redistribution(given, 0); };
  CHECK_THROWS_WITH(refuse({.tensors = {{"w", {8}}}, .from = {}, .to = {{whole}}}),
                    "0 placements for 1 tensors in the layout \"from\"");
  CHECK_THROWS_WITH(refuse({.tensors = {{"w", {8}}}, .from = {{whole}}, .to = {{whole}, {0, 1, 2}}}),
                    "3 processes for 2 ranks in the layout \"to\"");
  CHECK_THROWS_WITH(refuse({.tensors = {{"w", {8}}}, .from = {{whole}, {0, 0}}, .to = {{whole}}}),
                    "process 0 has two ranks in the layout \"from\"");
  CHECK_THROWS_WITH(refuse({.tensors = {{"w", {8}}}, .from = {{whole}}, .to = {{whole}, {1, 1}}}),
                    "process 1 has two ranks in the layout \"to\"");
  CHECK_THROWS_WITH(refuse({.tensors = {{"w", {8}}}, .from = {{whole}}, .to = {{whole}, {0, -7}}}),
                    "there is no process -7 in the layout \"to\"");
}
