#include "worker/trainer/commands/measured_step.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <sys/mman.h>
#include <type_traits>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "worker/comm/init.h"
#include "worker/comm/spawn.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/session/train_session.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t warm_up_steps = 3;  // they allocate, and make the primitives of oneDNN
constexpr std::size_t fewest_steps = 5;
constexpr Seconds longest{3};

// Says now and then how far a measurement is.
class ProgressLine {
 public:
  explicit ProgressLine(bool speaks) : speaks_(speaks) {}
  void step_done(std::size_t steps) {
    const auto now = std::chrono::steady_clock::now();
    if (!speaks_ || now < next_) return;
    next_ = now + every;
    log::info("plan: {} steps so far", steps);
  }

 private:
  static constexpr std::chrono::seconds every{2};
  const bool speaks_;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + every;
};

// The measures of some steps of a session: the most memory, and the times after the warm-up.
class Measurement {
 public:
  // The ranks agree on the end through the steps themselves: rank 0 asks for it.
  void take(TrainSession& session) {
    const auto available = session.total_steps();
    ProgressLine progress(session.is_first());
    for (bool stops = false; !stops && session.state().run.step < available;) {
      const auto result = session.step(session.is_first() && is_enough());
      peak_ = std::max(peak_, result.activation_peak);
      model_peaks_ = result.model_peaks;
      total_ += result.times.total();
      times_.push_back(result.times);
      stops = result.stop_requested;
      progress.step_done(times_.size());
    }
  }

  MeasuredStep result(const TrainConfig& config, TrainSession& session) const {
    MeasuredStep result{.ranks = session.group().size(),
                        .use = rank_use(config, session, peak_, model_peaks_, times_.size())};
    for (std::size_t i = warm_up(); i < times_.size() && result.steps < MeasuredStep::most_steps; ++i) {
      result.own[result.steps] = times_[i].own().count();
      result.wait[result.steps++] = times_[i].wait.count();
    }
    return result;
  }

 private:
  std::size_t warm_up() const { return std::min(warm_up_steps, times_.size() - 1); }
  // Counts the next step as well.
  bool is_enough() const {
    const std::size_t wanted = total_ > longest ? fewest_steps : MeasuredStep::most_steps;
    return times_.size() + 1 >= warm_up_steps + wanted;
  }

  std::size_t peak_ = 0;
  ModelPeaks model_peaks_;
  std::vector<StepTimes> times_;
  Seconds total_{0};
};

// Returns the figures of the rank that has the most memory, with this rank's bytes to send.
RankUse most(const RankUse& own, ProcessGroup& group) {
  constexpr std::size_t numbers = sizeof(RankUse) / sizeof(double);
  std::vector<RankUse> all(static_cast<std::size_t>(group.size()));
  group.allgather({&own, numbers, DType::float64}, {all.data(), numbers * all.size(), DType::float64},
                  {.blocking = true});
  RankUse result = *std::ranges::max_element(all, {}, &RankUse::memory);
  result.shared_parameters = own.shared_parameters;
  result.shared_buffers = own.shared_buffers;
  result.shared_experts = own.shared_experts;
  result.sent_within = own.sent_within;
  result.sent_for_update = own.sent_for_update;
  return result;
}

// A value that forked ranks write and this process reads.
template <class T>
class SharedValue {
 public:
  SharedValue() : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (memory_ == MAP_FAILED) throw Error(Errc::io, "plan: no memory to share with the ranks");
    new (memory_) T{};
  }
  ~SharedValue() { ::munmap(memory_, sizeof(T)); }
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;
  T& operator*() { return *static_cast<T*>(memory_); }

 private:
  void* memory_;
};

}  // namespace

Seconds MeasuredStep::median(double own_factor, double waiting_factor) const {
  std::vector<double> all;
  for (std::size_t i = 0; i < steps; ++i) all.push_back(own_factor * own[i] + waiting_factor * wait[i]);
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::ranges::nth_element(all, middle);
  return Seconds(*middle);
}

MeasuredStep measure_step(const TrainConfig& config, const Datasets& datasets, ProcessGroup& group,
                          const plugin::Registry& registry) {
  const auto& layout = datasets.train->layout();
  const auto task = make_task(config, layout, registry);
  auto state = make_train_state(config, {}, layout, *task, 0, registry);
  TrainSession session({.config = config, .datasets = datasets, .task = *task}, state, group);
  Measurement measurement;
  measurement.take(session);
  MeasuredStep result = measurement.result(config, session);
  result.use = most(result.use, group);
  return result;
}

MeasuredStep measure_step(const TrainConfig& config, const Datasets& datasets, int ranks,
                          const plugin::Registry& registry) {
  SharedValue<MeasuredStep> result;
  spawn(ranks, [&](const WorkerEnv& place) {
    const auto world = init_process_group(init_options(config, place));
    const auto measured = measure_step(config, datasets, world->group(), registry);
    if (place.rank == 0) *result = measured;
  });
  return *result;
}

}  // namespace ddprun::trainer
