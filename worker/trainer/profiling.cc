#include "ddprun/worker/trainer/profiling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/printable.h"
#include "ddprun/worker/comm/collectives.h"
#include "ddprun/worker/profiler/trace.h"
#include "ddprun/worker/trainer/machine_peak.h"
#include "ddprun/worker/trainer/memory_report.h"

namespace ddprun::trainer {
namespace {

using profiler::Event;
using profiler::Kind;

constexpr std::pair<Seconds StepTimes::*, const char*> phase_names[] = {
    {&StepTimes::data, "data"},           {&StepTimes::forward, "forward"},     {&StepTimes::backward, "backward"},
    {&StepTimes::optimizer, "optimizer"}, {&StepTimes::start, "start of sums"}, {&StepTimes::wait, "wait for sums"},
};

const char* name_of(Seconds StepTimes::*phase) {
  const auto* found = std::find_if(std::begin(phase_names), std::end(phase_names),
                                   [&](const auto& named) { return named.first == phase; });
  return found->second;
}

// All ranks measure at the same time, as they will compute.
double peak_flops(ProcessGroup& group) {
  group.barrier({.blocking = true});
  return measure_peak_flops();
}

// What ranks tell one another, as numbers.
constexpr std::size_t numbers = 8;
std::array<double, numbers> numbers_of(const profiler::RankSummary& own) {
  const auto& t = own.times;
  return {t.data.count(),  t.forward.count(), t.backward.count(),    t.optimizer.count(),
          t.start.count(), t.wait.count(),    own.transfers.count(), static_cast<double>(own.peak_bytes)};
}
profiler::RankSummary summary_of(const double* n) {
  profiler::RankSummary rank;
  rank.times = {.data = Seconds(n[0]),
                .forward = Seconds(n[1]),
                .backward = Seconds(n[2]),
                .optimizer = Seconds(n[3]),
                .start = Seconds(n[4]),
                .wait = Seconds(n[5])};
  rank.transfers = Seconds(n[6]);
  rank.peak_bytes = static_cast<std::size_t>(n[7]);
  return rank;
}

std::vector<profiler::RankSummary> gather(const profiler::RankSummary& own, ProcessGroup& group) {
  const auto mine = numbers_of(own);
  std::vector<double> all(numbers * static_cast<std::size_t>(group.size()));
  group.allgather({mine.data(), mine.size(), DType::float64}, span_of(all), {.blocking = true});
  const auto hosts = all_gather_bytes(group, own.host);
  std::vector<profiler::RankSummary> ranks;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    ranks.push_back(summary_of(&all[r * numbers]));
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

// The whole by kind, then the parts of the model that hold most.
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

Profiling::Profiling(Session& session, std::int64_t warmup, std::int64_t steps)
    : session_(session), warmup_(warmup), steps_(steps), peak_flops_(peak_flops(session.group())) {
  session_.record_saved_bytes();
  if (warmup_ == 0) start();
}

Profiling::~Profiling() {
  stop();
}

// The ranks' clocks may differ; what follows a barrier is the same time to within its duration.
void Profiling::start() {
  session_.group().barrier({.blocking = true});
  from_ = Clock::now();
  recorder_.emplace([from = from_] { return Clock::now() - from; });
  allocated_before_ = allocations_of_thread();
  session_.record_transfers(&transfers_);
  session_.listen_to_phases([this](auto phase, auto from, auto to) { add_phase(phase, from, to); });
}

void Profiling::stop() {
  if (!recorder_) return;
  session_.listen_to_phases({});
  session_.record_transfers(nullptr);
  const auto now = allocations_of_thread();
  allocated_ = {.allocations = now.allocations - allocated_before_.allocations,
                .bytes = now.bytes - allocated_before_.bytes};
  auto operations = recorder_->take();
  events_.insert(events_.end(), std::make_move_iterator(operations.begin()), std::make_move_iterator(operations.end()));
  recorder_.reset();
  take_transfers();
}

void Profiling::add_phase(Seconds StepTimes::*phase, Clock::time_point from, Clock::time_point to) {
  events_.push_back({.kind = Kind::phase, .name = name_of(phase), .start = from - from_, .duration = to - from});
}

void Profiling::take_transfers() {
  for (const Transfer& transfer : transfers_)
    events_.push_back({.kind = Kind::communication,
                       .name = "allreduce",
                       .start = transfer.start - from_,
                       .duration = transfer.end - transfer.start,
                       .track = static_cast<int>(transfer.bucket) + 1});
  transfers_.clear();
}

// Of the step that has ended.
void Profiling::take_reductions() {
  profiler::ReducedStep step;
  for (; reductions_ < transfers_.size(); ++reductions_) {
    step.ready.push_back(transfers_[reductions_].start - from_);
    step.ended.push_back(transfers_[reductions_].end - from_);
  }
  reduced_.push_back(std::move(step));
}

bool Profiling::step_done(const StepResult& result) {
  ++done_;
  if (recorder_) {
    ++recorded_;
    take_reductions();
    samples_ += result.samples;
    times_ += result.times;
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
  own.times = times_;
  own.transfers = profiler::covered_by(events_, Kind::communication);
  own.peak_bytes = bytes_of(memory_of(session_.state(), activation_peak_));
  return own;
}

profiler::Summary Profiling::summary() {
  profiler::Summary summary;
  summary.steps = static_cast<int>(recorded_);
  summary.batch_size = session_.batch_size();
  summary.samples_per_s = static_cast<double>(samples_) / std::max(times_.total(), Seconds(1e-9)).count();
  summary.ranks = gather(own_summary(), session_.group());
  summary.overlap = gather_overlap(reduced_, session_.group());
  summary.rows = profiler::rows_of(events_);
  summary.allocations = allocated_.allocations;
  summary.allocated_bytes = static_cast<double>(allocated_.bytes);
  const auto& state = session_.state();
  summary.memory = memory_parts(memory_of(state, activation_peak_), memory_by_module(state, session_.saved_bytes()));
  summary.peak_flops = peak_flops_;
  return summary;
}

void Profiling::write_trace(const std::filesystem::path& path) {
  auto& group = session_.group();
  const auto all = all_gather_bytes(group, profiler::trace_events(group.rank(), local_host_name(), events_));
  if (session_.is_first()) write_file_atomically(path, valid_json(profiler::trace_file(all)));
}

}  // namespace ddprun::trainer
