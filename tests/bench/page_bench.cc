#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <time.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "common/standard_output.h"
#include "launcher/dashboard/view_server.h"
#include "tests/bench/helpers.h"
#include "tests/bench/median.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"
#include "tests/support/browser.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using dashboard::Milliseconds;

constexpr const char* token = "0123456789abcdef";

struct Options {
  int ranks = 1000;
  int clients = 50;
  int seconds = 4;
  int updates = 60;
  int pairs = 5;
};

Milliseconds wall_clock() {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::system_clock::now().time_since_epoch());
}

double processor_seconds(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  ::clock_getcpuclockid(pid, &clock);
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A job each rank of which reports something new once a second.
class SimulatedJob {
 public:
  explicit SimulatedJob(int ranks) : ranks_(ranks) {
    Round round{.members = {{.node_id = "a", .host = "a", .address = "a", .nproc = ranks}}, .world_size = ranks};
    model_.round_proposed(wall_clock(), {.round = round, .reason = "first round"});
    model_.round_started(wall_clock(), round);
    std::vector<WorkerReport> workers;
    for (int rank = 0; rank < ranks; ++rank) workers.push_back({.local_rank = rank, .pid = 1000 + rank});
    model_.workers(wall_clock(), workers);
  }

  dashboard::JobModel& model() { return model_; }

  // Advances the job by a quarter of a second.
  void advance() {
    ++step_;
    for (int rank = static_cast<int>(step_ % 4); rank < ranks_; rank += 4) tell(rank);
    if (step_ % 4 != 0) tell(0);
    model_.tick(wall_clock());
  }

 private:
  void tell(int rank) {
    TrainingRecord record{.pid = 1000 + rank, .time_ms = ++told_, .step = step_, .total_steps = 100'000};
    record.loss = 1.0 / static_cast<double>(step_);
    record.samples_per_s = 1e5;
    record.steps = step_;
    record.compute = 0.2 * static_cast<double>(step_);
    record.communication = 0.05 * static_cast<double>(step_);
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    record.lateness = 0.1 * static_cast<double>(random_ >> 40) / (1 << 24);
    model_.training(wall_clock(), rank, record);
  }

  const int ranks_;
  dashboard::JobModel model_{{.run_id = "simulated", .program = "train.cfg", .host = "a"}, wall_clock()};
  std::int64_t step_ = 0;
  std::int64_t told_ = 0;
  std::uint64_t random_ = 7;
};

// Serves the page of a simulated job in a process of its own.
class PageServer {
 public:
  explicit PageServer(int ranks)
      : port_(testing::free_port()), helper_([port = port_, ranks](Line& line) { serve(port, ranks, line); }) {
    helper_.line().hear();
  }
  std::uint16_t port() const { return port_; }
  double processor() const { return processor_seconds(helper_.pid()); }

 private:
  static void serve(std::uint16_t port, int ranks, Line& line) {
    log::init("ddprun-bench", log::Level::warn);
    asio::io_context loop;
    SimulatedJob job(ranks);
    dashboard::ViewServer server(
        loop, {.port = port, .token = token}, "localhost",
        {.model = job.model(), .refresh = [] {}, .details = [](int) { return std::string("{}"); }});
    asio::steady_timer timer(loop);
    std::function<void()> wait = [&] {
      timer.expires_after(std::chrono::milliseconds(250));
      timer.async_wait([&](boost::system::error_code) {
        job.advance();
        server.publish();
        wait();
      });
    };
    wait();
    line.say("ready");
    loop.run();
  }

  const std::uint16_t port_;
  Helper helper_;
};

// Clients of a page's stream in a process of their own, which counts what they receive.
class StreamClients {
 public:
  StreamClients(std::uint16_t port, int count) : helper_([=](Line& line) { receive(port, count, line); }) {
    helper_.line().hear();  // all have received their first event
  }
  // Returns the number received since the last call.
  double received() {
    helper_.line().say("bytes");
    return std::stod(helper_.line().hear());
  }

 private:
  struct Client {
    explicit Client(asio::io_context& loop) : socket(loop) {}
    tcp::socket socket;
    std::vector<char> buffer = std::vector<char>(64 << 10);
  };

  static std::unique_ptr<Client> connect(asio::io_context& loop, const tcp::endpoint& server) {
    constexpr int attempts = 3000;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      auto client = std::make_unique<Client>(loop);
      boost::system::error_code failure;
      client->socket.connect(server, failure);
      if (!failure) return client;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the job's agent has not started yet
    }
    throw make_error(Errc::unreachable, "no server of a page at port {}", server.port());
  }

  static void receive(std::uint16_t port, int count, Line& line) {
    asio::io_context loop;
    const tcp::endpoint server(asio::ip::make_address("127.0.0.1"), port);
    std::vector<std::unique_ptr<Client>> clients;
    std::atomic<double> bytes{0};
    int waiting = count;
    std::function<void(Client&, bool)> read = [&](Client& client, bool first) {
      client.socket.async_read_some(asio::buffer(client.buffer),
                                    [&, first](boost::system::error_code e, std::size_t n) {
                                      if (e) return;
                                      bytes = bytes + static_cast<double>(n);
                                      if (first && --waiting == 0) line.say("ready");
                                      read(client, false);
                                    });
    };
    for (int i = 0; i < count; ++i) {
      clients.push_back(connect(loop, server));
      asio::write(clients.back()->socket,
                  asio::buffer(fmt::format(
                      "GET /events HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\r\n", port, token)));
      read(*clients.back(), true);
    }
    std::jthread answers([&] {
      for (;; bytes = 0) {
        line.hear();
        line.say(std::to_string(bytes));
      }
    });
    loop.run();
  }

  Helper helper_;
};

class PageBench {
 public:
  PageBench(const Options& options, bool json) : options_(options), json_(json) {}

  void run() {
    streams();
    paints();
    jobs();
  }

 private:
  void report(const char* what, double value, const char* unit) const {
    write_standard_output(
        json_ ? fmt::format("{{\"what\": \"{}\", \"value\": {:.6g}, \"unit\": \"{}\"}}\n", what, value, unit)
              : fmt::format("{:<60} {:>10.4g} {}\n", what, value, unit));
  }

  void streams() const {
    const PageServer server(options_.ranks);
    const auto span = std::chrono::seconds(options_.seconds);
    const auto share = [&](double seconds) { return 100 * seconds / options_.seconds; };
    const double start = server.processor();
    std::this_thread::sleep_for(span);
    const double idle = server.processor() - start;
    StreamClients clients(server.port(), options_.clients);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the first second, with the whole view, is not measured
    clients.received();
    const double before = server.processor();
    std::this_thread::sleep_for(span);
    const double bytes = clients.received();
    const double busy = server.processor() - before;
    report(fmt::format("stream of {} ranks", options_.ranks).c_str(),
           bytes / options_.clients / options_.seconds / 1000, "KB/s");
    report("processor of the server, without clients", share(idle), "% of a core");
    report(fmt::format("the same, with {} clients", options_.clients).c_str(), share(busy), "% of a core");
  }

  // Measures from the arrival of an event in the page until the frame that shows it has been drawn.
  void paints() const {
    if (!testing::Browser::installed()) return report("update to paint: Chromium is not installed", 0, "");
    const PageServer server(options_.ranks);
    testing::Browser browser;
    browser.resize(1280, 1000, false);
    browser.open(fmt::format("http://127.0.0.1:{}/#{}", server.port(), token));
    browser.wait_for(fmt::format("document.querySelectorAll('.rank').length === {}", options_.ranks));
    browser.evaluate(R"js((() => {
      window.times = [];
      const original = apply;
      apply = (message) => {
        const began = performance.now();
        original(message);
        requestAnimationFrame(() => {  // behind the page's own
          const channel = new MessageChannel();  // its message comes after the frame is drawn
          channel.port1.onmessage = () => times.push(performance.now() - began);
          channel.port2.postMessage(0);
        });
      };
    })())js");
    browser.wait_for(fmt::format("times.length >= {}", options_.updates), std::chrono::seconds(120));
    std::vector<double> times;
    const auto measured = browser.evaluate("times");
    for (const auto& time : measured.as_array()) times.push_back(time.to_number<double>());
    std::sort(times.begin(), times.end());
    const auto at = [&](double share) {
      return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
    };
    report(fmt::format("update to paint of {} ranks, p50 of {}", options_.ranks, times.size()).c_str(), at(0.5), "ms");
    report("the same, p95", at(0.95), "ms");
  }

  // The processor time of a whole job, agent and workers, with clients at its page and without a page; in pairs.
  void jobs() const {
    if (options_.pairs == 0) return;
    const testing::TempDir folder;
    std::vector<double> ratios;
    job(folder, false);  // the first run reads its files from disk
    for (int pair = 0; pair < options_.pairs; ++pair) {
      const bool first = pair % 2 == 0;
      const double one = job(folder, first), other = job(folder, !first);
      ratios.push_back(first ? one / other : other / one);
    }
    report(fmt::format("processor time of a job with {} clients at its page, median of {} pairs", options_.clients,
                       options_.pairs)
               .c_str(),
           100 * (median(ratios) - 1), "% more");
  }

  double job(const testing::TempDir& folder, bool watched) const {
    const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ddprun";
    std::ofstream(folder / "train.cfg") << "[data]\nname = digits\nsamples = 12800\n[train]\nepochs = 3\n"
                                           "batch_size = 32\n";
    std::ofstream(folder / "token") << token << "\n";
    std::filesystem::permissions(folder / "token",
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    const auto port = testing::free_port();
    Words command{program.string(), "--standalone", "--nproc_per_node=2"};
    if (watched) {
      command.push_back(fmt::format("--dashboard={}", port));
      command.push_back("--dashboard_token_file=" + (folder / "token").string());
    }
    command.push_back((folder / "train.cfg").string());
    const auto used = [] {
      rusage usage{};
      ::getrusage(RUSAGE_CHILDREN, &usage);
      const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
      };
      return seconds(usage.ru_utime) + seconds(usage.ru_stime);
    };
    const double before = used();
    Process process(command);
    std::optional<StreamClients> clients;
    if (watched) clients.emplace(port, options_.clients);
    process.wait();
    return used() - before;  // excludes the wait for the clients
  }

  const Options options_;
  const bool json_;
};

}  // namespace

Run page_bench(CLI::App& subcommand) {
  auto options = std::make_shared<Options>();
  subcommand.add_option("--ranks", options->ranks, "of the simulated job")->check(CLI::Range(1, 100'000));
  subcommand.add_option("--clients", options->clients, "of the stream")->check(CLI::Range(1, 120));
  subcommand.add_option("--seconds", options->seconds, "for which streams are measured")->check(CLI::Range(1, 600));
  subcommand.add_option("--updates", options->updates, "whose way to the screen is measured")
      ->check(CLI::Range(1, 10'000));
  subcommand.add_option("--pairs", options->pairs, "of real jobs, with clients at the page and without a page")
      ->check(CLI::Range(0, 1000));
  return [options](bool json) { PageBench(*options, json).run(); };
}

}  // namespace ddprun::bench
