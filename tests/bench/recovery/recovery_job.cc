#include "tests/bench/recovery/recovery_job.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "common/environment.h"
#include "common/error.h"
#include "tests/bench/launchers.h"
#include "tests/bench/link_floor.h"
#include "tests/support/free_port.h"
#include "tests/support/host_network.h"
#include "tests/support/processes.h"

namespace ddprun::bench {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds time_limit{60};  // for one recovery, and for one step
constexpr int steps_between = 5;                // steps between two recoveries
constexpr double inputs = 784, classes = 10;    // of the MLP on the digits
constexpr std::size_t floats_of_parameter = 3;  // itself and Adam's two moments
constexpr std::size_t raw_bytes = std::size_t{1} << 30;

double parameters_of_mlp(double hidden) {
  return inputs * hidden + hidden + hidden * hidden + hidden + hidden * classes + classes;
}

int hidden_for(std::size_t state_bytes) {
  const double parameters = static_cast<double>(state_bytes) / (floats_of_parameter * sizeof(float));
  const double linear = inputs + classes + 2;
  const double hidden = (std::sqrt(linear * linear + 4 * (parameters - classes)) - linear) / 2;
  return std::max(1, static_cast<int>(std::lround(hidden)));
}

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void wait_a_little(const Deadline& deadline, const std::string& what) {
  if (deadline.expired())
    throw make_error(Errc::timeout, "waited {} s for {}: the job has ended, or hangs", time_limit.count(), what);
  ::usleep(1000);
}

std::string generated_digits(std::int64_t samples) {
  return fmt::format("[data]\nname = digits\nsamples = {}\ntest_samples = 100\n", samples);
}

std::string cnn(const std::string& data, std::int64_t samples) {
  const std::string source =
      data.empty() ? generated_digits(samples) : fmt::format("[data]\nname = mnist\ndir = {}\n", data);
  return "[model]\nname = cnn\n" + source + "[optim]\nname = adam\n";
}

std::string mlp(int hidden, std::int64_t samples) {
  return fmt::format("[model]\nname = mlp\nhidden = {0} {0}\n", hidden) + generated_digits(samples) +
         "[optim]\nname = adam\n";
}

// Writes the text on which it trains, too.
std::string gpt_nano(const std::filesystem::path& folder) {
  std::ofstream text(folder / "input.txt");
  for (int i = 0; i < 20'000; ++i) text << i << " squared is " << i * i << ".\n";
  return fmt::format(
      "[model]\nname = gpt\npreset = nano\n[data]\nname = text\ncontext = 128\ndir = {}\n[optim]\nname = adam\n",
      folder.string());
}

}  // namespace

std::vector<json::object> RecordFile::take() {
  std::vector<json::object> records;
  std::ifstream file(path_);
  file.seekg(at_);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    at_ += static_cast<std::streamoff>(line.size()) + 1;
    records.push_back(json::parse(line).as_object());
  }
  return records;
}

RecoveryJob::RecoveryJob(const RecoveryJobOptions& options, const std::string& backend, int ranks)
    : options_(options),
      ranks_(ranks),
      hidden_(hidden_for(options.state_bytes)),
      samples_(static_cast<std::int64_t>(options.batch) * ranks),
      recoveries_(folder_ / "recoveries") {
  if (options.on_hosts) hosts_.emplace(options.nodes);
  if (options.delay.count() > 0) switch_.emplace(*hosts_, options.delay);
  write_config(backend);
}

void RecoveryJob::start() {
  const int port = testing::free_port();
  for (int node = 0; node < options_.nodes; ++node) agents_.push_back(start_agent(node, port));
}

std::vector<double> RecoveryJob::undisturbed_steps() {
  std::vector<double> ms;
  for (const double rate : wait_for_steps(options_.undisturbed_steps))
    ms.push_back(1e3 * static_cast<double>(samples_) / rate);
  return ms;
}

RecoveryPhases RecoveryJob::lose(int rank) {
  wait_for_standbys();
  const auto pid = pid_of(rank);
  const auto began = now_us();
  ::kill(pid, options_.freezes ? SIGSTOP : SIGKILL);
  constexpr std::array keys = {"noticed_us", "planned_us", "formed_us", "healed_us", "ready_us", "applied_us"};
  static_assert(keys.size() == phase_names.size());
  std::array<double, keys.size()> ends{};
  RecoveryPhases phases;
  const auto deadline = Deadline::in(time_limit);
  for (int left = ranks_; left > 0;) {
    for (const auto& record : recoveries_.take()) {
      --left;
      const auto since_loss = [&](const char* key) {
        return static_cast<double>(record.at(key).to_number<std::int64_t>() - began) / 1e3;
      };
      if (record.at("rank").to_number<int>() == rank) {
        phases.copy_ms = since_loss("healed_us") - since_loss("formed_us");
        phases.replacement_ms = since_loss("applied_us");
        continue;
      }
      for (std::size_t i = 0; i < keys.size(); ++i) ends[i] = std::max(ends[i], since_loss(keys[i]));
    }
    wait_a_little(deadline, fmt::format("{} ranks to recover", left));
  }
  for (std::size_t i = 0; i < keys.size(); ++i) phases.ms[i] = ends[i] - (i == 0 ? 0 : ends[i - 1]);
  phases.total_ms = ends.back();
  wait_for_steps(steps_between);
  return phases;
}

std::int64_t RecoveryJob::lost_steps() const {
  std::set<std::int64_t> made;
  RecordFile metrics(folder_ / "metrics");
  for (const auto& record : metrics.take())
    if (record.contains("step")) made.insert(record.at("step").to_number<std::int64_t>());
  return made.empty() ? 0 : *made.rbegin() - std::ssize(made);
}

std::size_t RecoveryJob::state_bytes() const {
  if (options_.state_bytes == 0) return 0;
  return static_cast<std::size_t>(parameters_of_mlp(hidden_)) * floats_of_parameter * sizeof(float);
}

double RecoveryJob::raw_rate() const {
  const auto at = [this](int host, auto make) {
    std::optional<testing::InNetwork> there;
    if (hosts_) there.emplace(hosts_->network(host));
    return make();
  };
  const auto address = hosts_ ? hosts_->address(0) : "127.0.0.1";
  auto receiver = at(0, [&] { return LinkFloor::listen(address); });
  auto sender = at(hosts_ ? 1 : 0, [&] { return LinkFloor::dial(address, receiver.port()); });
  receiver.accept();
  std::thread sending([&] { sender.send(raw_bytes); });
  const auto began = std::chrono::steady_clock::now();
  receiver.receive(raw_bytes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  sending.join();
  return static_cast<double>(raw_bytes) / seconds.count();
}

void RecoveryJob::write_config(const std::string& backend) const {
  const auto model = options_.state_bytes > 0  ? mlp(hidden_, 200 * samples_)
                     : options_.model == "gpt" ? gpt_nano(folder_.path())
                                               : cnn(options_.data, 200 * samples_);
  std::ofstream(folder_ / "train.cfg")
      << model
      << fmt::format(
             "[train]\nepochs = 1000000\nlog_every = 0\nbatch_size = 0\nglobal_batch_size = {}\n"
             "shards = {}\n"
             "[eval]\nevery_epochs = 0\n[metrics]\nfile = {}\n[recovery]\n"
             "standby = {}\nfile = {}\n[dist]\nbackend = {}\n",
             samples_, options_.shards, in_folder("metrics"), options_.standby, in_folder("recoveries"), backend);
}

Process RecoveryJob::start_agent(int node, int port) const {
  auto environment = Environment::capture();
  environment.set("OMP_NUM_THREADS", "1");
  environment.set("DDPRUN_BENCH_JOB", folder_.path().string());
  Words words{beside("ddprun"), fmt::format("--nproc_per_node={}", ranks_ / options_.nodes),
              fmt::format("--max_restarts={}", options_.kills)};
  if (options_.nodes == 1 && !hosts_)
    words.emplace_back("--standalone");
  else
    words.insert(words.end(), {fmt::format("--nnodes={}", options_.nodes),
                               fmt::format("--rdzv_endpoint={}:{}", hosts_ ? hosts_->address(0) : "127.0.0.1", port),
                               fmt::format("--rdzv_conf=is_host={}", node == 0)});
  words.push_back(in_folder("train.cfg"));
  return Process(on_its_host(node, std::move(words)),
                 {.environment = environment.entries(), .show_errors = false, .own_group = true});
}

Words RecoveryJob::on_its_host(int node, Words words) const {
  if (!hosts_) return words;
  auto all = hosts_->enter_isolated(node);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::vector<pid_t> RecoveryJob::processes() const {
  return testing::processes_with("DDPRUN_BENCH_JOB=" + folder_.path().string());
}

pid_t RecoveryJob::pid_of(int rank) const {
  const auto wanted = '\0' + fmt::format("RANK={}", rank) + '\0';
  for (const pid_t pid : processes())
    if (('\0' + testing::proc_text(std::to_string(pid), "environ")).find(wanted) != std::string::npos) return pid;
  throw make_error(Errc::io, "there is no process of rank {}", rank);
}

// Waits until each node has a process that stands by.
void RecoveryJob::wait_for_standbys() const {
  if (!options_.standby) return;
  const auto deadline = Deadline::in(time_limit);
  const auto count = [this] {
    return std::ranges::count_if(
        processes(), [](pid_t pid) { return testing::proc_text(std::to_string(pid), "comm") == "ddprun-standby\n"; });
  };
  while (count() < options_.nodes) wait_a_little(deadline, "a process to stand by");
}

// Waits for that many more steps; returns their samples a second.
std::vector<double> RecoveryJob::wait_for_steps(int count) const {
  std::vector<double> rates;
  auto deadline = Deadline::in(time_limit);
  RecordFile metrics(folder_ / "metrics");
  metrics.take();
  while (std::ssize(rates) < count) {
    for (const auto& record : metrics.take()) {
      if (!record.contains("step")) continue;
      rates.push_back(record.at("samples_per_s").to_number<double>());
      deadline = Deadline::in(time_limit);
    }
    wait_a_little(deadline, "a step");
  }
  return rates;
}

}  // namespace ddprun::bench
