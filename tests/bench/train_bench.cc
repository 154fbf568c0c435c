// The whole job as a user runs it, from the command to the first optimizer step and the further ones: ddprun, its
// store, the workers, their data and their collectives. Times of steps are the workers' own, from metrics.file, which
// is a FIFO here, so that a step is known at the moment when it is reported.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/core.h>

#include "common/deadline.h"
#include "common/environment.h"
#include "common/error.h"
#include "common/unique_fd.h"
#include "tests/bench/median.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int> ranks{1, 2};
  int rounds = 5;
  int steps = 60;  // measured steps of each run
  int batch = 64;
};

// The warm-up is the first epoch: the digits are drawn in it.
constexpr int steps_an_epoch = 25;
constexpr std::chrono::seconds time_limit{120};  // limit for one run

// The job of one row: this many ranks, started by ddprun or, as the floor, the worker by itself.
struct Row {
  bool launched = true;
  int ranks = 1;
};

struct Figures {
  std::vector<double> samples_per_s, wait;     // each step after the warm-up
  std::vector<double> first_step_ms, wall_ms;  // each run
  double rss_mib = 0;
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Takes the lines of metrics.file as they arrive.
class Records {
 public:
  Records(const std::filesystem::path& fifo, Clock::time_point start, Figures& figures)
      : start_(start), figures_(figures) {
    if (::mkfifo(fifo.c_str(), 0600) != 0)
      throw make_error(Errc::io, "cannot make the FIFO {}: {}", fifo.string(), errno_text(errno));
    fd_ = UniqueFd(::open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!fd_) throw make_error(Errc::io, "cannot open {}: {}", fifo.string(), errno_text(errno));
  }

  int fd() const { return fd_.get(); }
  int steps() const { return steps_; }

  void take() {
    char block[4096];
    for (ssize_t n; (n = ::read(fd_.get(), block, sizeof(block))) > 0;)
      text_.append(block, static_cast<std::size_t>(n));
    for (std::size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      take_line(text_.substr(0, end));
  }

 private:
  void take_line(const std::string& line) {
    const auto record = boost::json::parse(line).as_object();
    if (!record.contains("step")) return;
    if (++steps_ == 1) figures_.first_step_ms.push_back(ms_since(start_));
    if (steps_ <= steps_an_epoch) return;
    figures_.samples_per_s.push_back(record.at("samples_per_s").to_number<double>());
    figures_.wait.push_back(record.at("wait").to_number<double>());
  }

  const Clock::time_point start_;
  Figures& figures_;
  UniqueFd fd_;
  std::string text_;
  int steps_ = 0;
};

void write_config(const std::filesystem::path& file, const std::filesystem::path& metrics, const Options& options,
                  int ranks) {
  std::ofstream(file) << "[model]\nname = cnn\n[data]\nname = digits\nsamples = "
                      << std::int64_t{options.batch} * ranks * steps_an_epoch
                      << "\ntest_samples = 100\n[train]\nepochs = 1000000\nmax_steps = "
                      << steps_an_epoch + options.steps << "\nbatch_size = " << options.batch
                      << "\nlog_every = 0\n[eval]\nevery_epochs = 0\n[optim]\nname = adam\n[metrics]\nfile = "
                      << metrics.string() << "\n";
}

Words command_of(const Row& row, const std::filesystem::path& config) {
  const auto programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (!row.launched) return {(programs / "ddprun-worker").string(), config.string()};
  return {(programs / "ddprun").string(), "--standalone", fmt::format("--nproc_per_node={}", row.ranks),
          config.string()};
}

// Reads the pipe until the process has ended.
void follow(const Process& process, Records& records) {
  const UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, process.pid(), 0)));
  if (!ended) throw make_error(Errc::io, "pidfd_open: {}", errno_text(errno));
  const auto deadline = Deadline::in(time_limit);
  pollfd entries[2] = {{records.fd(), POLLIN, 0}, {ended.get(), POLLIN, 0}};
  while (entries[1].revents == 0) {
    if (deadline.expired())
      throw make_error(Errc::timeout, "the job did not end within {} s: {} steps were done", time_limit.count(),
                       records.steps());
    ::poll(entries, 2, deadline.poll_timeout_ms());
    records.take();
  }
}

void run_once(const Row& row, const Options& options, Figures& figures) {
  const testing::TempDir folder;
  write_config(folder / "train.cfg", folder / "metrics", options, row.ranks);
  auto environment = Environment::capture();
  environment.set("OMP_NUM_THREADS", "1");
  const auto start = Clock::now();
  Records records(folder / "metrics", start, figures);
  Process process(command_of(row, folder / "train.cfg"), {.environment = environment.entries(), .show_errors = true});
  follow(process, records);
  figures.wall_ms.push_back(ms_since(start));
  figures.rss_mib = std::max(figures.rss_mib, process.wait());
  if (records.steps() != steps_an_epoch + options.steps)
    throw make_error(Errc::internal, "{} steps were reported, {} expected", records.steps(),
                     steps_an_epoch + options.steps);
}

void print(bool json, const Row& row, const Options& options, const Figures& figures, double floor) {
  const auto* launcher = row.launched ? "ddprun" : "none";
  const double rate = median(figures.samples_per_s);
  const double first_min = *std::min_element(figures.first_step_ms.begin(), figures.first_step_ms.end());
  if (json)
    fmt::print(R"({{"launcher": "{}", "ranks": {}, "batch": {}, "samples_per_s": {:.0f}, "wait": {:.4f}, )"
               R"("first_step_ms": {:.2f}, "first_step_ms_min": {:.2f}, "wall_ms": {:.1f}, "rss_mib": {:.1f}}})"
               "\n",
               launcher, row.ranks, options.batch, rate, median(figures.wait), median(figures.first_step_ms), first_min,
               median(figures.wall_ms), figures.rss_mib);
  else
    fmt::print("{:<9}{:>6}{:>15.0f}{:>8.1f}{:>15.2f}{:>9.2f}{:>9.0f}{:>9.1f}{:>8.2f}x\n", launcher, row.ranks, rate,
               100 * median(figures.wait), median(figures.first_step_ms), first_min, median(figures.wall_ms),
               figures.rss_mib, rate / floor);
}

void run(const Options& options, bool json) {
  std::vector<Row> rows{{.launched = false, .ranks = 1}};
  for (const int ranks : options.ranks) rows.push_back({.launched = true, .ranks = ranks});
  std::vector<Figures> figures(rows.size());
  for (int round = 0; round < options.rounds; ++round)  // the rows in turn: a busy moment of the machine hits them all
    for (std::size_t i = 0; i < rows.size(); ++i) run_once(rows[i], options, figures[i]);
  if (!json)
    fmt::print("{:<9}{:>6}{:>15}{:>8}{:>15}{:>9}{:>9}{:>9}{:>9}\n", "launcher", "ranks", "samples_per_s", "wait_%",
               "first_step_ms", "min_ms", "wall_ms", "rss_mib", "floor");
  for (std::size_t i = 0; i < rows.size(); ++i)
    print(json, rows[i], options, figures[i], median(figures[0].samples_per_s));
}

}  // namespace

Run train_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "The CNN on generated digits with Adam, one thread a rank. samples_per_s: of all ranks together, the median over "
      "the\n"
      "steps behind the first epoch, in which the digits are drawn; wait: share of a step spent waiting for other "
      "ranks;\n"
      "first_step_ms: from the start of the launcher to the first step's record in metrics.file, the median of the "
      "rounds;\n"
      "rss_mib: of the largest process. Launcher none is the floor: ddprun-worker by itself. For the arithmetic alone "
      "see\n"
      "train_step.");
  subcommand.add_option("--ranks", options->ranks, "workers, each a row")->delimiter(',')->capture_default_str();
  subcommand.add_option("--rounds", options->rounds, "runs of each row")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--steps", options->steps, "optimizer steps measured in each run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--batch", options->batch, "samples a step and rank")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
