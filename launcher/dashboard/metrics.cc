#include "launcher/dashboard/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ddprun::dashboard {
namespace {

// A larger job exports only the lateness of its latest ranks, since each time series takes memory in Prometheus.
constexpr std::size_t most_ranks = 64;
constexpr std::size_t late_ranks = 8;

using Labels = std::vector<std::pair<std::string_view, std::string>>;

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

std::string text_of(const Labels& labels) {
  if (labels.empty()) return "";
  std::string text = "{";
  for (const auto& [name, value] : labels)
    text += fmt::format("{}{}=\"{}\"", text.size() > 1 ? "," : "", name, escaped(value));
  return text + "}";
}

// Writes families of samples; a family without samples is not written.
class MetricsWriter {
 public:
  explicit MetricsWriter(MetricsFormat format) : format_(format) {}

  // name is a counter's without "_total", the end of the names of its samples.
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    const bool counter = type == "counter";
    suffix_ = counter ? "_total" : "";
    const auto family = name_ + (counter && format_ == MetricsFormat::prometheus ? "_total" : "");
    head_ = fmt::format("# HELP {} {}\n# TYPE {} {}\n", family, help, family, type);
  }
  void sample(double value, const Labels& labels = {}) { write(suffix_, value, labels); }
  void known(double value, const Labels& labels = {}) {
    if (std::isfinite(value)) sample(value, labels);
  }
  void write(std::string_view suffix, double value, const Labels& labels = {}) {
    text_ += std::exchange(head_, "");
    text_ += fmt::format("{}{}{} {}\n", name_, suffix, text_of(labels), value);
  }
  std::string take() { return std::move(text_) + (format_ == MetricsFormat::openmetrics ? "# EOF\n" : ""); }

 private:
  const MetricsFormat format_;
  std::string name_;
  std::string_view suffix_;
  std::string head_;
  std::string text_;
};

void write_job(MetricsWriter& out, const JobView& view) {
  out.begin("ddprun_job_info", "gauge", "The job; always 1.");
  out.sample(1, {{"job", view.facts.program}, {"run_id", view.facts.run_id}, {"version", view.facts.version}});
  out.begin("ddprun_state", "gauge", "1 for the state that the job is in, 0 for the others.");
  for (std::size_t i = 0; i < state_names.size(); ++i)
    out.sample(view.state == static_cast<State>(i) ? 1 : 0, {{"state", std::string(state_names[i])}});
  out.begin("ddprun_world_size", "gauge", "Workers of the job.");
  out.sample(view.world_size);
  out.begin("ddprun_generation", "gauge", "Number of the round that runs, 0 for the first.");
  out.sample(static_cast<double>(std::max<std::int64_t>(0, view.generation)));
}

void write_training(MetricsWriter& out, const JobView& view) {
  const auto& training = *view.training;
  out.begin("ddprun_steps", "counter", "Optimizer steps done, those that were done again included.");
  out.sample(static_cast<double>(view.totals.steps));
  out.begin("ddprun_samples", "counter", "Samples trained by all ranks together.");
  out.sample(static_cast<double>(view.totals.samples));
  if (view.totals.tokens > 0) {
    out.begin("ddprun_tokens", "counter", "Tokens trained by all ranks together.");
    out.sample(static_cast<double>(view.totals.tokens));
  }
  out.begin("ddprun_training_step", "gauge", "The last step that is done, 1 for the first.");
  out.sample(static_cast<double>(training.step));
  out.begin("ddprun_training_steps_planned", "gauge", "Steps of the whole run.");
  out.sample(static_cast<double>(training.total_steps));
  out.begin("ddprun_training_loss", "gauge", "The last known loss, mean over the global batch.");
  out.known(training.loss);
  out.begin("ddprun_gradient_norm", "gauge", "The last known norm of all gradients before clipping.");
  out.known(training.gradient_norm);
  out.begin("ddprun_learning_rate", "gauge", "The learning rate.");
  out.known(training.learning_rate);
  out.begin("ddprun_training_samples_per_second", "gauge", "Samples a second of all ranks together.");
  out.known(training.samples_per_s);
  out.begin("ddprun_training_time_left_seconds", "gauge", "Time left to the end of the run, at the mean speed so far.");
  out.known(training.seconds_left);
}

void write_steps(MetricsWriter& out, const JobView& view) {
  const auto& totals = view.totals;
  out.begin("ddprun_step_duration_seconds", "histogram", "Time of a step.");
  std::int64_t count = 0;
  for (std::size_t i = 0; i < totals.step_counts.size(); ++i) {
    count += totals.step_counts[i];
    const auto bound =
        i < TrainingRecord::step_bounds.size() ? fmt::format("{}", TrainingRecord::step_bounds[i]) : "+Inf";
    out.write("_bucket", static_cast<double>(count), {{"le", bound}});
  }
  out.write("_sum", totals.step_seconds);
  out.write("_count", static_cast<double>(count));
  const auto& training = *view.training;
  const double all = training.step_seconds();
  out.begin("ddprun_step_share_ratio", "gauge", "Share of the time of steps, at one rank of this node.");
  if (all <= 0) return;
  out.sample(training.data / all, {{"phase", "data"}});
  out.sample(training.compute / all, {{"phase", "compute"}});
  out.sample(training.communication / all, {{"phase", "communication"}});
}

void write_goodput(MetricsWriter& out, const JobView& view) {
  out.begin("ddprun_goodput_seconds", "counter", "Time in which the job trained.");
  out.sample(view.seconds[static_cast<std::size_t>(Part::training)]);
  out.begin("ddprun_badput_seconds", "counter", "Time in which the job did not train, by what it did.");
  for (std::size_t i = 1; i < part_names.size(); ++i)
    out.sample(view.seconds[i], {{"reason", std::string(part_names[i])}});
}

void write_recoveries(MetricsWriter& out, const JobView& view) {
  out.begin("ddprun_recoveries", "counter", "New rounds after the first, by the fault that this node saw.");
  for (const auto* fault : fault_names) {
    const auto found = view.totals.recoveries.find(fault);
    out.sample(static_cast<double>(found == view.totals.recoveries.end() ? 0 : found->second), {{"fault", fault}});
  }
  out.begin("ddprun_recovery_duration_seconds", "summary", "Time of a recovery, by phase.");
  for (const auto& [phase, times] : view.totals.recovery_times) {
    const auto all = std::accumulate(times.begin(), times.end(), Milliseconds(0));
    out.write("_sum", std::chrono::duration<double>(all).count(), {{"phase", phase}});
    out.write("_count", static_cast<double>(times.size()), {{"phase", phase}});
  }
  out.begin("ddprun_restarts", "counter", "Restarts after failures, of --max_restarts.");
  out.sample(view.restarts_used, {{"cause", "failure"}});
}

void write_lateness(MetricsWriter& out, const JobView& view) {
  std::vector<std::size_t> ranks(view.ranks.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::erase_if(ranks, [&](std::size_t rank) { return !std::isfinite(view.ranks[rank].lateness); });
  if (view.ranks.size() > most_ranks) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](auto a, auto b) { return view.ranks[a].lateness > view.ranks[b].lateness; });
    ranks.resize(std::min(ranks.size(), late_ranks));
  }
  out.begin("ddprun_rank_lateness_seconds", "gauge",
            "How much longer a step takes a rank on its own than the median of all; of many ranks the latest.");
  for (const auto rank : ranks) out.sample(view.ranks[rank].lateness, {{"rank", std::to_string(rank)}});
}

// The samples are by operation; a row of the view is of one group and size.
void write_collectives(MetricsWriter& out, const JobView& view) {
  struct Sums {
    double seconds = 0;
    double median = 0;  // median of the entry that took longest
    double longest = 0;
    std::int64_t count = 0;
  };
  std::map<std::string, Sums> operations;
  for (const auto& row : view.collectives) {
    auto& sums = operations[row.operation];
    sums.seconds += row.seconds;
    sums.count += row.count;
    if (row.seconds > sums.longest) std::tie(sums.longest, sums.median) = std::pair(row.seconds, row.median);
  }
  out.begin("ddprun_collective_duration_seconds", "summary",
            "Time of collectives at all ranks, of about one in eight, waiting for others included.");
  for (const auto& [operation, sums] : operations) {
    out.write("", sums.median, {{"op", operation}, {"quantile", "0.5"}});
    out.write("_sum", sums.seconds, {{"op", operation}});
    out.write("_count", static_cast<double>(sums.count), {{"op", operation}});
  }
}

void write_store(MetricsWriter& out, const JobView& view) {
  out.begin("ddprun_store_operations", "counter", "Operations of the workers' store that this agent serves.");
  for (const auto& [operation, count] : view.store_operations)
    out.sample(static_cast<double>(count), {{"op", operation}});
}

void write_nodes(MetricsWriter& out, const JobView& view) {
  const auto each = [&](const char* name, const char* help, auto value) {
    out.begin(name, "gauge", help);
    for (const auto& node : view.nodes)
      if (node.usage) out.sample(value(*node.usage), {{"node", std::to_string(node.group_rank)}, {"host", node.host}});
  };
  const auto bytes = [](std::int64_t size) { return static_cast<double>(size); };
  each("ddprun_node_processors", "Processors of a node.", [](const NodeUsage& u) { return u.processors; });
  each("ddprun_node_processors_busy", "Processors of a node that are busy.", [](const NodeUsage& u) { return u.busy; });
  each("ddprun_node_memory_bytes", "Memory of a node.", [&](const NodeUsage& u) { return bytes(u.memory); });
  each("ddprun_node_memory_used_bytes", "Memory of a node in use.",
       [&](const NodeUsage& u) { return bytes(u.memory_used); });
  each("ddprun_node_shared_memory_bytes", "Size of /dev/shm of a node.",
       [&](const NodeUsage& u) { return bytes(u.shared_memory); });
  each("ddprun_node_shared_memory_used_bytes", "What is in /dev/shm of a node.",
       [&](const NodeUsage& u) { return bytes(u.shared_memory_used); });
  each("ddprun_node_network_receive_bytes_per_second", "What the network interfaces of a node receive.",
       [](const NodeUsage& u) { return u.received; });
  each("ddprun_node_network_transmit_bytes_per_second", "What the network interfaces of a node send.",
       [](const NodeUsage& u) { return u.sent; });
}

}  // namespace

MetricsFormat metrics_format(std::string_view accept) {
  return accept.find("application/openmetrics-text") == std::string_view::npos ? MetricsFormat::prometheus
                                                                               : MetricsFormat::openmetrics;
}

std::string_view content_type(MetricsFormat format) {
  return format == MetricsFormat::openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                              : "text/plain; version=0.0.4; charset=utf-8";
}

std::string metrics_text(const JobView& view, MetricsFormat format) {
  MetricsWriter out(format);
  write_job(out, view);
  write_goodput(out, view);
  write_recoveries(out, view);
  if (view.training) {
    write_training(out, view);
    write_steps(out, view);
  }
  write_lateness(out, view);
  write_collectives(out, view);
  write_store(out, view);
  write_nodes(out, view);
  if (view.checkpoint.count() > 0) {
    out.begin("ddprun_checkpoint_age_seconds", "gauge", "Time since the last checkpoint that is known.");
    out.sample(std::chrono::duration<double>(view.now - view.checkpoint).count());
  }
  return out.take();
}

}  // namespace ddprun::dashboard
