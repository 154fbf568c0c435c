// A training job whose rendezvous server is flooded with connections of junk, replays and wrong tokens: which clients
// are admitted, the server's cost, and how much longer the job's steps take. The sender's own processor time is bound
// to one core, which the job does not need: one worker with one thread.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include "common/environment.h"
#include "common/error.h"
#include "common/standard_output.h"
#include "rendezvous/store/authenticate.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/store/tcp_store.h"
#include "rendezvous/trust/client_handshake.h"
#include "rendezvous/trust/token_file.h"
#include "tests/bench/launchers.h"
#include "tests/bench/median.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"
#include "tests/support/free_port.h"
#include "tests/support/store_junk.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

using namespace rendezvous;
using Clock = std::chrono::steady_clock;

struct Options {
  int connections = 5000;
  int rate = 500;
  int quiet_s = 4;  // time before the flood and after it
};

constexpr const char* run_id = "flood";
constexpr int warm_up_steps = 20, batch = 64;

Deadline soon() {
  return Deadline::in(std::chrono::seconds(60));
}

double processor_seconds(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double resident_kib(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
}

pid_t child_named(const std::string& name, pid_t parent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string pid, command, state;
    pid_t its_parent = 0;
    if (file >> pid >> command >> state >> its_parent && its_parent == parent && command == "(" + name + ")")
      return std::stoi(pid);
  }
  throw Error(Errc::internal, "the job's worker is not found");
}

// ddprun with one worker that trains until the bench ends it. Its server requires the token.
class Job {
 public:
  Job() : port_(testing::free_port()), token_(Secret::random()), file_(folder_ / "token", token_) {
    std::ofstream(folder_ / "train.cfg")
        << "[model]\nname = cnn\n[data]\nname = digits\nsamples = " << 25 * batch
        << "\ntest_samples = 100\n[train]\nepochs = 1000000\nbatch_size = " << batch
        << "\nlog_every = 0\n[eval]\nevery_epochs = 0\n[optim]\nname = adam\n[metrics]\nfile = " << metrics().string()
        << "\n";
    auto environment = Environment::capture();
    environment.set("OMP_NUM_THREADS", "1");
    process_ = std::make_unique<Process>(
        Words{beside("ddprun"), "--nnodes=1", "--nproc_per_node=1", "--rdzv_backend=c10d",
              fmt::format("--rdzv_id={}", run_id), fmt::format("--rdzv_endpoint=127.0.0.1:{}", port_),
              fmt::format("--rdzv_conf=token_file={}", (folder_ / "token").string()), (folder_ / "train.cfg").string()},
        ProcessOptions{.environment = environment.entries(), .show_errors = true, .own_group = true});
    const auto deadline = soon();
    while (step_seconds().size() < warm_up_steps) {
      if (deadline.expired() || !runs()) throw Error(Errc::timeout, "the training job has not begun");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    worker_ = child_named("ddprun-worker", process_->pid());
  }

  std::uint16_t port() const { return port_; }
  pid_t agent() const { return process_->pid(); }
  pid_t worker() const { return worker_; }
  bool runs() const { return !process_->ends_before(Deadline::at(Deadline::Clock::now())); }
  std::shared_ptr<const Credentials> credentials() const {
    return std::make_shared<Credentials>(read_token_file(folder_ / "token"), run_id);
  }
  // Returns the durations of all steps so far.
  std::vector<double> step_seconds() const {
    std::vector<double> seconds;
    std::ifstream file(metrics());
    for (std::string line; std::getline(file, line) && !file.eof();) {
      const auto record = boost::json::parse(line).as_object();
      if (record.contains("step")) seconds.push_back(batch / record.at("samples_per_s").to_number<double>());
    }
    return seconds;
  }

 private:
  std::filesystem::path metrics() const { return folder_ / "metrics"; }

  testing::TempDir folder_;
  const std::uint16_t port_;
  const Secret token_;
  const TokenFile file_;
  std::unique_ptr<Process> process_;
  pid_t worker_ = -1;
};

// The cost of a time span.
struct Span {
  double seconds = 0, agent_percent = 0, step_ms = 0, step_processor_ms = 0;
};

template <class Action>
Span measure(const Job& job, Action action) {
  const auto steps = job.step_seconds().size();
  const auto began = Clock::now();
  const double processor = processor_seconds(job.agent()), of_worker = processor_seconds(job.worker());
  action();
  Span span{.seconds = std::chrono::duration<double>(Clock::now() - began).count()};
  span.agent_percent = 100 * (processor_seconds(job.agent()) - processor) / span.seconds;
  auto all = job.step_seconds();
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(steps));
  span.step_processor_ms =
      1000 * (processor_seconds(job.worker()) - of_worker) / std::max(1.0, static_cast<double>(all.size()));
  span.step_ms = all.empty() ? std::nan("") : 1000 * median(all);
  return span;
}

// Sends connections of the three kinds by turns; counts those that the server answers as it does clients.
class Flood {
 public:
  explicit Flood(const Job& job)
      : port_(job.port()),
        replay_(ClientHandshake(*job.credentials()).take_output()),
        wrong_(Secret::random(), run_id) {}

  int send(int connections, int rate) {
    stay_on_one_core();
    const auto began = Clock::now();
    int admitted = 0;
    for (int i = 0; i < connections; ++i) {
      std::this_thread::sleep_until(began + std::chrono::duration<double>(static_cast<double>(i) / rate));
      admitted += attack(i % 3) ? 1 : 0;
    }
    return admitted;
  }

 private:
  static void stay_on_one_core() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(std::max(0, ::sched_getcpu())), &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }

  bool attack(int kind) try {
    const auto fd = connect_once("127.0.0.1", port_, soon());
    if (kind == 2) {
      authenticate(fd.get(), wrong_, soon());
      return true;
    }
    auto junk = junk_.noise(200);
    if (junk[0] == '\0') junk[0] = '\x17';  // no plain client, since one of this user would be admitted
    const auto bytes = kind == 0 ? junk : replay_ + encode(AddRequest{"/intruders", 1});
    send_all(fd.get(), bytes, soon());
    return false;
  } catch (const Error&) {
    return false;
  }

  const std::uint16_t port_;
  const std::string replay_;
  const Credentials wrong_;
  testing::StoreJunk junk_{7};
};

void report(bool json, const char* what, double value, const char* unit) {
  write_standard_output(json ? fmt::format("{{\"what\": \"{}\", \"value\": {:.6g}, \"unit\": \"{}\"}}\n", what,
                                           std::isfinite(value) ? value : -1, unit)
                             : fmt::format("{:<44} {:>12.4g} {}\n", what, value, unit));
}

void run_flood(const Options& options, bool json) {
  const Job job;
  TcpStore witness({.host = "127.0.0.1", .port = job.port(), .credentials = job.credentials()}, soon());
  const auto wait = [&] { std::this_thread::sleep_for(std::chrono::seconds(options.quiet_s)); };
  const auto before = measure(job, wait);
  const double memory = resident_kib(job.agent());
  Flood flood(job);
  int admitted = 0;
  const auto during = measure(job, [&] { admitted = flood.send(options.connections, options.rate); });
  const double memory_after = resident_kib(job.agent());
  const auto after = measure(job, wait);
  const bool intruders = witness.check({"intruders"}, soon());
  const double quiet_step = (before.step_ms + after.step_ms) / 2;
  const double quiet_processor = (before.step_processor_ms + after.step_processor_ms) / 2;
  report(json, "connections", options.connections, "");
  report(json, "rate", options.connections / during.seconds, "1/s");
  report(json, "admitted", admitted + (intruders ? 1 : 0), "");
  report(json, "crashes", job.runs() ? 0 : 1, "");
  report(json, "agent's memory before", memory, "KiB");
  report(json, "agent's memory after", memory_after, "KiB");
  report(json, "agent's processor without the flood", (before.agent_percent + after.agent_percent) / 2, "% of a core");
  report(json, "agent's processor with it", during.agent_percent, "% of a core");
  report(json, "step without the flood", quiet_step, "ms");
  report(json, "step with it", during.step_ms, "ms");
  report(json, "difference", 100 * (during.step_ms / quiet_step - 1), "%");
  report(json, "worker's processor time a step without it", quiet_processor, "ms");
  report(json, "worker's processor time a step with it", during.step_processor_ms, "ms");
  report(json, "difference", 100 * (during.step_processor_ms / quiet_processor - 1), "%");
}

}  // namespace

Run flood_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer("The agent of the job runs the server. A long run is --connections=1000000.");
  subcommand.add_option("--connections", options->connections, "of junk, replays and wrong tokens, by turns")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--rate", options->rate, "of them a second")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  subcommand.add_option("--quiet", options->quiet_s, "seconds before and after, for comparison")
      ->check(CLI::Range(1, 600))
      ->capture_default_str();
  return [options](bool json) { run_flood(*options, json); };
}

}  // namespace ddprun::bench
