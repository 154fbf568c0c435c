#include "launcher/dashboard/metrics.h"

#include <cstdlib>
#include <fstream>
#include <regex>

#include "common/atomic_file.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/launcher/dashboard/model_time.h"

using namespace ddprun;
using namespace ddprun::dashboard;
using namespace ddprun::testing;

namespace {

std::string metrics(const JobModel& model) {
  return metrics_text(model.view(), MetricsFormat::prometheus);
}

OperationTiming timing(const char* kind, double seconds) {
  return {.kind = kind, .bytes = 1024, .count = 4, .seconds = seconds, .median = seconds / 4};
}

RankProgress rank_in_group(std::vector<OperationTiming> timings) {
  return {.record = RankRecord{.size = 2, .timings = std::move(timings)}};
}

WatchedModel recovered_job() {
  WatchedModel job;
  job.fail_after_ten_steps();
  job.recover();
  job.after(4'000);
  auto record = job.record(1, 14, 7);
  record.lateness = 0.02;
  record.gradient_norm = 1.5;
  record.learning_rate = 0.1;
  record.checkpoint_step = 12;
  record.checkpoint_ms = job.now.count() - 1'500;
  job.model.tick(job.now);
  job.model.training(job.now, 0, record);
  job.model.groups(
      job.now,
      {{"group/0",
        {rank_in_group({timing("allreduce", 2), timing("barrier", 1)}), rank_in_group({timing("allreduce", 2)})}},
       {"group/1", {rank_in_group({timing("allreduce", 8)})}}});
  job.model.store_operations({{"get", 7}, {"multi_set", 2}});
  job.model.usage(job.now, {.processors = 4, .busy = 1.5, .memory = 1000, .memory_used = 500, .sent = 12});
  return job;
}

}  // namespace

TEST_CASE("the metrics of a job that recovered") {
  const auto job = recovered_job();
  const auto text = metrics(job.model);
  for (const auto* line : {"ddprun_job_info{job=\"train.cfg\",run_id=\"shop\",version=\"1.0\"} 1",
                           "ddprun_state{state=\"training\"} 1",
                           "ddprun_state{state=\"forming\"} 0",
                           "ddprun_world_size 2",
                           "ddprun_generation 1",
                           "# TYPE ddprun_steps_total counter",
                           "ddprun_steps_total 17",
                           "ddprun_samples_total 1088",
                           "ddprun_training_step 14",
                           "ddprun_gradient_norm 1.5",
                           "ddprun_learning_rate 0.1",
                           "ddprun_step_duration_seconds_bucket{le=\"0.3\"} 0",
                           "ddprun_step_duration_seconds_bucket{le=\"1\"} 17",
                           "ddprun_step_duration_seconds_bucket{le=\"+Inf\"} 17",
                           "ddprun_step_duration_seconds_sum 17",
                           "ddprun_step_duration_seconds_count 17",
                           "ddprun_step_share_ratio{phase=\"data\"} 0.25",
                           "ddprun_badput_seconds_total{reason=\"restart\"} 1.5",
                           "ddprun_badput_seconds_total{reason=\"replay\"} 2",
                           "ddprun_recoveries_total{fault=\"signal\"} 1",
                           "ddprun_recoveries_total{fault=\"oom\"} 0",
                           "ddprun_recovery_duration_seconds_sum{phase=\"agree\"} 0.3",
                           "ddprun_recovery_duration_seconds_count{phase=\"agree\"} 1",
                           "ddprun_restarts_total{cause=\"failure\"} 1",
                           "ddprun_rank_lateness_seconds{rank=\"0\"} 0.02",
                           "ddprun_checkpoint_age_seconds 1.5"}) {
    CAPTURE(line);
    CHECK_THAT("\n" + text, Catch::Contains("\n" + std::string(line) + "\n"));
  }
}

TEST_CASE("collectives, the store's operations, tokens and nodes have metrics") {
  auto job = recovered_job();
  auto record = job.record(1, 15, 8);
  record.tokens = 4'000;
  job.after(1'000);
  record.time_ms = job.now.count();
  job.model.training(job.now, 0, record);
  const auto text = metrics(job.model);
  for (const auto* line :
       {"ddprun_tokens_total 4000", "ddprun_collective_duration_seconds{op=\"allreduce\",quantile=\"0.5\"} 2",
        "ddprun_collective_duration_seconds_sum{op=\"allreduce\"} 12",
        "ddprun_collective_duration_seconds_count{op=\"allreduce\"} 12",
        "ddprun_collective_duration_seconds_sum{op=\"barrier\"} 1", "ddprun_store_operations_total{op=\"get\"} 7",
        "ddprun_store_operations_total{op=\"multi_set\"} 2", "ddprun_node_processors_busy{node=\"0\",host=\"a\"} 1.5",
        "ddprun_node_memory_used_bytes{node=\"0\",host=\"a\"} 500",
        "ddprun_node_network_transmit_bytes_per_second{node=\"0\",host=\"a\"} 12",
        "ddprun_badput_seconds_total{reason=\"heal\"} 0", "ddprun_recoveries_total{fault=\"freeze\"} 0",
        "ddprun_recoveries_total{fault=\"cut\"} 0"}) {
    CAPTURE(line);
    CHECK_THAT("\n" + text, Catch::Contains("\n" + std::string(line) + "\n"));
  }
  if (std::system("command -v promtool > /dev/null") != 0) return;
  const TempDir folder;
  std::ofstream(folder / "metrics") << text;
  const auto result = run_child({"/bin/sh", "-c", "promtool check metrics < \"$0\"", (folder / "metrics").string()});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
}

TEST_CASE("what is not known has no metric") {
  WatchedModel job;
  const auto text = metrics(job.model);
  for (const auto* name : {"ddprun_training_loss", "ddprun_checkpoint_age_seconds", "ddprun_rank_lateness_seconds",
                           "nan", "ddprun_step_share_ratio"}) {
    CAPTURE(name);
    CHECK(text.find(name) == std::string::npos);
  }
  CHECK_THAT(text, Catch::Contains("ddprun_state{state=\"forming\"} 1\n"));
}

TEST_CASE("of many ranks the latest eight have a metric") {
  WatchedModel job;
  job.propose(0);
  job.start(0, 65);
  for (int rank = 0; rank < 65; ++rank) {
    auto record = job.record(0, 1, 1);
    record.lateness = 0.1 * rank;
    job.model.training(job.now, rank, record);
  }
  const auto text = metrics(job.model);
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("\nddprun_rank_lateness_seconds{", at)) != std::string::npos; ++at) ++count;
  CHECK(count == 8);
  CHECK_THAT(text,
             Catch::Contains("{rank=\"64\"}") && Catch::Contains("{rank=\"57\"}") && !Catch::Contains("{rank=\"56\"}"));
}

TEST_CASE("labels are escaped") {
  const JobModel model({.run_id = "a\"b\\c\nd"}, Milliseconds(1));
  CHECK_THAT(metrics(model), Catch::Contains(R"(run_id="a\"b\\c\nd")"));
}

TEST_CASE("OpenMetrics is written when it is asked for: other names of counters, and an end") {
  CHECK(metrics_format("text/plain;version=0.0.4") == MetricsFormat::prometheus);
  CHECK(metrics_format("") == MetricsFormat::prometheus);
  CHECK(metrics_format("application/openmetrics-text;version=1.0.0,text/plain;q=0.5") == MetricsFormat::openmetrics);
  const auto job = recovered_job();
  const auto text = metrics_text(job.model.view(), MetricsFormat::openmetrics);
  CHECK_THAT(text, Catch::Contains("# TYPE ddprun_steps counter\nddprun_steps_total 17\n"));
  CHECK(text.ends_with("\n# EOF\n"));
}

TEST_CASE("promtool finds nothing wrong with the metrics") {
  if (std::system("command -v promtool > /dev/null") != 0) SKIP("promtool is not installed (package prometheus)");
  const TempDir folder;
  const auto job = recovered_job();
  std::ofstream(folder / "metrics") << metrics(job.model);
  const auto result = run_child({"/bin/sh", "-c", "promtool check metrics < \"$0\"", (folder / "metrics").string()});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
}

TEST_CASE("the alerts and the dashboard for Grafana use metrics that there are") {
  const auto job = recovered_job();
  const auto text = metrics(job.model);
  for (const auto* file : {"alerts.yml", "grafana-dashboard.json"}) {
    const auto content = read_whole_file(std::filesystem::path(DDPRUN_CONFIGS) / "observability" / file);
    static const std::regex name("ddprun_[a-z_]+");
    std::size_t count = 0;
    for (std::sregex_iterator found(content.begin(), content.end(), name), end; found != end; ++found, ++count) {
      CAPTURE(file, found->str());
      CHECK_THAT(text, Catch::Contains("\n" + found->str() + " ") || Catch::Contains("\n" + found->str() + "{"));
    }
    CHECK(count >= 8);
  }
}

TEST_CASE("promtool finds nothing wrong with the alerts") {
  if (std::system("command -v promtool > /dev/null") != 0) SKIP("promtool is not installed (package prometheus)");
  const auto result =
      run_child({"/bin/sh", "-c", "promtool check rules \"$0\"", DDPRUN_CONFIGS "/observability/alerts.yml"});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("5 rules found"));
}
