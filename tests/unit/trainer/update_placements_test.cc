#include "worker/trainer/session/update_placements.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "tests/numerics/layout_job.h"
#include "tests/unit/parallel/sharding/bucket_plan.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

// Threads of ranks throw: two of them must not assert at once.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::int64_t bytes_of(const optim::NamedTensors& state) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : state) bytes += static_cast<std::int64_t>(tensor.bytes());
  return bytes;
}

// Returns the bytes that a rank has of all tensors of an optimizer, by their placements.
std::int64_t placed_bytes(const std::vector<sharding::PlacedTensor>& tensors, int rank) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.local_bytes(rank);
  return bytes;
}

struct Sizes {
  std::int64_t whole = 0;    // the optimizer's state at one rank
  std::int64_t counted = 0;  // that of all ranks, copies once
  std::int64_t most = 0;     // the largest of one rank
};

Sizes sizes_of(const std::string& text, int ranks, const std::string& parallel) {
  Sizes sizes;
  const TrainingJob whole(text), job(text + "[parallel]\n" + parallel);
  sizes.whole = bytes_of(Replica(whole).state.optimizer->state());
  std::mutex mutex;
  run_ranks(ranks, [&](ProcessGroup& group) {
    Replica replica(job);
    const auto session = replica.session(group);
    const auto& forms = session->forms();
    const auto& own = replica.state.optimizer->state();
    const auto tensors = sharding::placed_tensors(placements_of_updates(forms, *replica.state.model), own,
                                                  forms.pipelined ? &forms.mesh.group("pipeline") : nullptr);
    if (bytes_of(own) != placed_bytes(tensors, group.rank()))
      throw std::runtime_error(std::to_string(bytes_of(own)) + " bytes in place of " +
                               std::to_string(placed_bytes(tensors, group.rank())));
    const std::lock_guard lock(mutex);
    sizes.most = std::max(sizes.most, bytes_of(own));
    for (const auto& tensor : tensors)
      if (counts_once_at(tensor, group.rank())) sizes.counted += tensor.local_bytes(group.rank());
  });
  return sizes;
}

}  // namespace

namespace {

void check(const std::string& text, int ranks, const std::string& parallel, int parts) {
  INFO(ranks << " ranks\n" << parallel);
  const Sizes sizes = sizes_of(text, ranks, parallel);
  CHECK(sizes.counted == sizes.whole);
  // All tensor-parallel ranks have norms, biases and positions, and two stages have the embedding.
  CHECK(static_cast<double>(sizes.most) < 1.25 * static_cast<double>(sizes.whole) / parts);
}

}  // namespace

TEST_CASE("each rank has the bytes of the optimizer's state that the placements say, and together they have all") {
  const TextFile text_file;
  const std::string text = text_file.keys({.layers = 4, .width = 64}) + adamw + "[train]\nglobal_batch_size = 16\n";
  const std::string stages = "pipeline = 2\nmicro_batches = 2\nsplit = h.2\n";
  for (const auto& [ranks, parallel, parts] :
       std::vector<std::tuple<int, std::string, int>>{{2, "", 1},
                                                      {4, "zero = 1\n", 4},
                                                      {4, "zero = 2\nshard_group = 2\n", 2},
                                                      {4, "zero = 3\n", 4},
                                                      {4, "context = 2\nzero = 1\n", 4},
                                                      {8, "context = 2\ntensor = 2\nzero = 1\n", 8},
                                                      {8, "context = 2\ntensor = 2\nzero = 3\n", 8},
                                                      {8, stages + "context = 2\nzero = 1\n", 8},
                                                      {4, "tensor = 2\n", 2},
                                                      {4, "tensor = 2\nzero = 1\n", 4},
                                                      {4, "tensor = 2\nzero = 2\n", 4},
                                                      {8, "tensor = 2\nzero = 3\nshard_group = 2\n", 4},
                                                      {4, stages, 2},
                                                      {4, stages + "zero = 1\n", 4},
                                                      {4, stages + "zero = 2\n", 4},
                                                      {8, stages + "zero = 3\nshard_group = 2\n", 4},
                                                      {8, stages + "tensor = 2\n", 4},
                                                      {8, stages + "tensor = 2\nzero = 1\n", 8},
                                                      {8, stages + "tensor = 2\nzero = 2\n", 8},
                                                      {8, stages + "tensor = 2\nzero = 3\n", 8}}) {
    check(text, ranks, parallel, parts);
  }
}

TEST_CASE("of divided parameters a rank has what the placements say between steps, and two units more within one") {
  const TextFile text_file;
  const std::string text =
      text_file.keys({.layers = 8, .width = 64}) + adamw + "[train]\nglobal_batch_size = 16\n[parallel]\nzero = 3\n";
  for (const std::string more :
       {"schedule = gpipe\n", "", "schedule = zero_bubble\n", "schedule = interleaved\nvirtual_stages = 2\n"}) {
    INFO(more);
    const std::string split = more.starts_with("schedule = interleaved") ? "split = h.2 h.4 h.6\n" : "split = h.4\n";
    const TrainingJob job(text + "pipeline = 2\ntensor = 2\nmicro_batches = 4\n" + split + more);
    run_ranks(8, [&](ProcessGroup& group) {
      Replica replica(job);
      const auto session = replica.session(group);
      const auto& forms = session->forms();
      const ShardedBuckets& divided = *forms.parallelism.sharded_buckets();
      const auto placements = placements_of_updates(forms, *replica.state.model);
      std::size_t placed = 0, parts = 0, tensors = 0;
      std::vector<std::size_t> units;
      for (const auto& [name, parameter] : divided.parameters)
        placed += static_cast<std::size_t>(placements.of_parameter(name).local_bytes(group.rank()));
      for (std::size_t b = 0; b < divided.buckets.size(); ++b) {
        parts += divided.values[b].bytes();
        tensors += divided.buckets[b].slices.size();
        units.push_back(divided.buckets[b].count * size_of(divided.buckets[b].dtype));
      }
      constexpr std::size_t most_padding = 64;
      require(placed <= parts && parts < placed + tensors * most_padding, "parts are placed, and padded");
      std::ranges::sort(units, std::greater());
      session->step(false);
      const ModelPeaks peaks = session->step(false).model_peaks;  // it knows which unit comes next
      require(peaks.parameters <= parts + units[0] + units[1], "two units more");
      // Two units travel, each with a part that is to be added, and two begin.
      require(peaks.gradients <= parts + 5 * units[0], "gradients under way");
      for (const auto& [name, parameter] : replica.state.model->named_parameters())
        require(!parameter.value().storage()->is_present(), name + " is whole between steps");
    });
  }
}

TEST_CASE("each rank has the bytes of the optimizer's state of experts that the placements say") {
  const TextFile text_file;
  const std::string text =
      text_file.keys({.layers = 4, .width = 64}) + "experts = 4\n" + adamw + "[train]\nglobal_batch_size = 16\n";
  const std::string stages = "pipeline = 2\nmicro_batches = 2\nsplit = h.2\n";
  for (const auto& [ranks, parallel, parts] :
       std::vector<std::tuple<int, std::string, int>>{{2, "expert = 2\n", 1},
                                                      {4, "expert = 2\nzero = 1\n", 4},
                                                      {8, "expert = 2\ncontext = 2\nzero = 1\n", 8},
                                                      {8, "expert = 2\ntensor = 2\nzero = 1\n", 8},
                                                      {8, stages + "expert = 2\nzero = 1\n", 8}})
    check(text, ranks, parallel, parts);
}
