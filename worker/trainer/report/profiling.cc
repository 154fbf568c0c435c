#include "worker/trainer/report/profiling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/host_port.h"
#include "common/printable.h"
#include "worker/comm/collectives.h"
#include "worker/profiler/trace.h"
#include "worker/trainer/report/machine_peak.h"
#include "worker/trainer/report/memory_report.h"
#include "worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

// All ranks measure at the same time, since they will compute at the same time.
double peak_flops(ProcessGroup& group, Device device, DType products) {
  group.barrier({.blocking = true});
  return device.type == DeviceType::cuda ? measure_peak_flops(device, products) : measure_peak_flops();
}

// The times that ranks exchange, as numbers.
constexpr std::array times_told{&StepTimes::data,      &StepTimes::upload, &StepTimes::forward, &StepTimes::backward,
                                &StepTimes::optimizer, &StepTimes::start,  &StepTimes::wait};
constexpr std::array use_told{&profiler::DeviceUse::hidden, &profiler::DeviceUse::copies,
                              &profiler::DeviceUse::queueing, &profiler::DeviceUse::paced};

std::vector<double> numbers_of(const profiler::RankSummary& own) {
  std::vector<double> numbers;
  for (const auto time : times_told) numbers.push_back((own.times.*time).count());
  numbers.push_back(own.transfers.count());
  numbers.push_back(static_cast<double>(own.peak_bytes));
  numbers.push_back(own.device ? 1 : 0);
  const auto use = own.device.value_or(profiler::DeviceUse{});
  for (const auto time : use_told) numbers.push_back((use.*time).count());
  return numbers;
}

profiler::RankSummary summary_of(const double* number) {
  profiler::RankSummary rank;
  for (const auto time : times_told) rank.times.*time = Seconds(*number++);
  rank.transfers = Seconds(*number++);
  rank.peak_bytes = static_cast<std::size_t>(*number++);
  if (*number++ == 0) return rank;
  rank.device.emplace();
  for (const auto time : use_told) (*rank.device).*time = Seconds(*number++);
  return rank;
}

std::vector<profiler::RankSummary> gather(const profiler::RankSummary& own, ProcessGroup& group) {
  const auto mine = numbers_of(own);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.allgather({mine.data(), mine.size(), DType::float64}, span_of(all), {.blocking = true});
  const auto hosts = all_gather_bytes(group, own.host);
  std::vector<profiler::RankSummary> ranks;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    ranks.push_back(summary_of(&all[r * mine.size()]));
    ranks.back().host = hosts[r];
  }
  return ranks;
}

std::string text_of(const std::vector<profiler::ReducedStep>& steps) {
  std::string text;
  const auto add = [&text](std::int64_t value) { text.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  for (const auto& step : steps) {
    add(std::ssize(step.ready));
    for (const auto time : step.ready) add(time.count());
    for (const auto time : step.ended) add(time.count());
  }
  return text;
}

std::vector<profiler::ReducedStep> steps_in(std::string_view text) {
  const auto take = [&text] {
    std::int64_t value = 0;
    std::memcpy(&value, text.data(), sizeof(value));
    text.remove_prefix(sizeof(value));
    return value;
  };
  std::vector<profiler::ReducedStep> steps;
  while (!text.empty()) {
    const auto count = static_cast<std::size_t>(take());
    auto& step = steps.emplace_back();
    for (auto* times : {&step.ready, &step.ended})
      for (std::size_t i = 0; i < count; ++i) times->emplace_back(take());
  }
  return steps;
}

// Collective.
std::optional<profiler::Overlap> gather_overlap(const std::vector<profiler::ReducedStep>& own, ProcessGroup& group) {
  std::vector<std::vector<profiler::ReducedStep>> ranks;
  for (const auto& text : all_gather_bytes(group, text_of(own))) ranks.push_back(steps_in(text));
  if (ranks.size() == 1) return std::nullopt;
  return profiler::overlap_of(ranks, static_cast<std::size_t>(group.rank()));
}

std::size_t bytes_of(const MemoryUse& use) {
  return use.parameters + use.gradients + use.optimizer + use.activations;
}

// Returns the whole by kind, then the parts of the model that hold most.
std::vector<profiler::MemoryPart> memory_parts(const MemoryUse& all, std::vector<ModuleMemory> modules) {
  constexpr std::size_t shown = 3;
  std::vector<profiler::MemoryPart> parts{{"parameters", all.parameters},
                                          {"gradients", all.gradients},
                                          {"optimizer", all.optimizer},
                                          {"activations", all.activations}};
  std::stable_sort(modules.begin(), modules.end(),
                   [](const auto& a, const auto& b) { return bytes_of(a.use) > bytes_of(b.use); });
  for (std::size_t i = 0; i < std::min(shown, modules.size()); ++i)
    parts.push_back({"of it " + modules[i].name, bytes_of(modules[i].use)});
  return parts;
}

}  // namespace

Profiling::Profiling(Session& session, std::int64_t warmup, std::int64_t steps, DType products)
    : session_(session),
      warmup_(warmup),
      steps_(steps),
      device_(device_of(*session.state().model)),
      peak_flops_(peak_flops(session.group(), device_, products)) {
  session_.record_saved_bytes();
  if (warmup_ == 0) start();
}

Profiling::~Profiling() = default;

// The ranks' clocks may differ; the time after a barrier is the same to within the barrier's duration.
void Profiling::start() {
  if (device_.type == DeviceType::cuda) await_device(device_);
  session_.group().barrier({.blocking = true});
  recorder_ = device_.type == DeviceType::cuda ? make_device_recorder(session_, device_) : make_host_recorder(session_);
  allocated_before_ = allocations_of_thread();
}

void Profiling::stop() {
  if (!recorder_) return;
  const auto now = allocations_of_thread();
  allocated_ = {.allocations = now.allocations - allocated_before_.allocations,
                .bytes = now.bytes - allocated_before_.bytes};
  steps_recorded_ = recorder_->finish();
  recorder_.reset();
}

bool Profiling::step_done(const StepResult& result) {
  ++done_;
  if (recorder_) {
    ++recorded_;
    recorder_->step_done(result);
    samples_ += result.samples;
    activation_peak_ = std::max(activation_peak_, result.activation_peak);
    if (recorded_ == steps_) stop();
  } else if (done_ == warmup_) {
    start();
  }
  return recorded_ == steps_;
}

profiler::RankSummary Profiling::own_summary() const {
  profiler::RankSummary own;
  own.host = local_host_name();
  own.times = steps_recorded_.times;
  own.transfers = steps_recorded_.transfers;
  own.device = steps_recorded_.device;
  own.peak_bytes = bytes_of(memory_of(session_.state(), activation_peak_));
  return own;
}

profiler::Summary Profiling::summary() {
  profiler::Summary summary;
  summary.steps = static_cast<int>(recorded_);
  summary.batch_size = session_.batch_size();
  summary.samples_per_s =
      static_cast<double>(samples_) / std::max(steps_recorded_.times.total(), Seconds(1e-9)).count();
  summary.ranks = gather(own_summary(), session_.group());
  summary.overlap = gather_overlap(steps_recorded_.steps, session_.group());
  summary.rows = profiler::rows_of(steps_recorded_.operations);
  summary.allocations = allocated_.allocations;
  summary.allocated_bytes = static_cast<double>(allocated_.bytes);
  const auto& state = session_.state();
  summary.memory = memory_parts(memory_of(state, activation_peak_), memory_by_module(state, session_.saved_bytes()));
  summary.peak_flops = peak_flops_;
  return summary;
}

void Profiling::write_trace(const std::filesystem::path& path) {
  auto& group = session_.group();
  const auto all =
      all_gather_bytes(group, profiler::trace_events(group.rank(), local_host_name(), steps_recorded_.trace));
  if (session_.is_first()) write_file_atomically(path, valid_json(profiler::trace_file(all)));
}

}  // namespace ddprun::trainer
