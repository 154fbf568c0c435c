#include "launcher/doctor/doctor.h"

#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/descriptors.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/pipe.h"
#include "common/random.h"
#include "common/standard_output.h"
#include "common/version.h"
#include "launcher/cli/subcommands.h"
#include "launcher/doctor/diagnosis.h"
#include "launcher/doctor/link_test.h"
#include "launcher/doctor/probe.h"
#include "launcher/doctor/probe_process.h"
#include "launcher/hosts/hosts_job.h"
#include "launcher/hosts/ssh_command.h"

namespace ddprun::doctor {
namespace {

using std::chrono::milliseconds;

// Bounds the login on a host and the time until its facts are here. OpenSSH itself gives up an address after 10 s.
constexpr milliseconds start_timeout{15'000};
// The answer of a probe may take this much longer, since it comes over ssh.
constexpr milliseconds answer_margin{2'000};

HostsOptions hosts_of(const SubcommandLine& line) {
  HostsOptions options;
  options.hosts = line.value("hosts");
  options.hostfile = line.value("hostfile");
  if (line.has("ssh")) options.ssh = line.value("ssh");
  return options;
}

// A host to examine, and its probe.
struct Host {
  std::string name;
  std::unique_ptr<ProbeProcess> probe;
  int port = 0;  // port of its link tests
};

class Examination {
 public:
  Examination(const HostsOptions& options, const Environment& environment, const std::string& program) {
    results_.version = project_version();
    const auto entries =
        options.names_hosts() ? named_hosts(options) : std::vector<HostEntry>{{.name = local_host_name(), .slots = {}}};
    for (const auto& entry : entries) {
      const std::string probe(probe_option);
      const auto command = is_this_machine(entry, local_host_name()) ? std::vector<std::string>{program, probe}
                                                                     : ssh_command(options.ssh, entry, program, probe);
      hosts_.push_back({.name = entry.name, .probe = std::make_unique<ProbeProcess>(command, environment, guardian_)});
      hosts_.back().probe->send("token " + token_);
    }
  }

  Measurements run() {
    take_facts();
    for (const auto& round : rounds_of_pairs(hosts_.size())) test_links(round);
    return std::move(results_);
  }

 private:
  void take_facts() {
    std::vector<ProbeProcess*> all;
    for (const auto& host : hosts_) all.push_back(host.probe.get());
    ProbeProcess::wait_for_messages(all, Deadline::in(start_timeout));
    for (auto& host : hosts_) {
      HostResult result{.host = host.name, .facts = {}, .error = {}};
      const auto message = host.probe->take_message();
      std::istringstream words(message.value_or(""));
      std::string kind, facts;
      if (words >> kind >> host.port && kind == "facts" && std::getline(words >> std::ws, facts))
        result.facts = facts_from_json(facts);
      else if (host.probe->ended())
        result.error = host.probe->last_words();
      else
        result.error = fmt::format("it has not answered within {} s", start_timeout.count() / 1000);
      results_.hosts.push_back(std::move(result));
    }
  }

  bool can_be_tested(const Pair& pair) const {
    return results_.hosts[pair.first].facts && results_.hosts[pair.second].facts;
  }

  // Runs all tests at the same time: they have no host in common.
  void test_links(const std::vector<Pair>& round) {
    ++test_id_;
    std::vector<ProbeProcess*> asked;
    for (const auto& pair : round) {
      if (!can_be_tested(pair)) continue;
      const auto& addresses = results_.hosts[pair.second].facts->addresses;
      auto& probe = *hosts_[pair.first].probe;
      probe.send(fmt::format("test {} {} {}", test_id_, addresses.empty() ? "127.0.0.1" : addresses.front(),
                             hosts_[pair.second].port));
      asked.push_back(&probe);
    }
    ProbeProcess::wait_for_messages(asked, Deadline::in(link_timeout + answer_margin));
    for (const auto& pair : round)
      if (can_be_tested(pair)) results_.links.push_back(link_result(pair, answer_of(*hosts_[pair.first].probe)));
  }

  // The answer to the latest test; those to earlier tests, which came too late, are dropped.
  std::string answer_of(ProbeProcess& probe) const {
    while (const auto message = probe.take_message()) {
      std::istringstream words(*message);
      int id = 0;
      std::string answer;
      if (words >> id && id == test_id_ && std::getline(words >> std::ws, answer)) return answer;
    }
    return "error the probe does not answer any more";
  }

  static LinkResult link_result(const Pair& pair, const std::string& answer) {
    LinkResult result{.from = pair.first, .to = pair.second, .figures = {}, .error = {}};
    std::istringstream words(answer);
    std::string kind;
    words >> kind;
    LinkFigures figures;
    std::int64_t round_trip = 0, ahead = 0;
    if (kind == "link" && words >> round_trip >> figures.sent_bytes_per_s >> figures.received_bytes_per_s >> ahead) {
      figures.round_trip = std::chrono::nanoseconds(round_trip);
      figures.clock_ahead = std::chrono::nanoseconds(ahead);
      result.figures = figures;
    } else {
      std::getline(words >> std::ws, result.error);
    }
    return result;
  }

  Guardian guardian_;
  const std::string token_ = random_hex(16);
  std::vector<Host> hosts_;
  int test_id_ = 0;  // id of the latest round
  Measurements results_;
};

}  // namespace

std::optional<int> run_doctor(const std::vector<std::string>& arguments, const Environment& environment,
                              const std::string& program) {
  if (arguments.empty()) return std::nullopt;
  if (arguments.size() == 1 && arguments.front() == probe_option) return run_probe(environment);
  if (arguments.front() != "doctor") return std::nullopt;
  const auto& subcommand = *find_subcommand("doctor");
  const auto line = parse_subcommand(subcommand, {arguments.begin() + 1, arguments.end()});
  if (line.has("help")) {
    write_standard_output(help_text(subcommand));
    return exit_success;
  }
  raise_descriptor_limit();  // each probe needs three pipes
  catch_sigpipe();           // a probe that has ended reads no request
  const auto measurements = Examination(hosts_of(line), environment, program).run();
  const auto diagnosis = diagnose(measurements);
  write_standard_output(report_text(measurements, diagnosis));
  if (const auto file = line.value("write_hostfile"); !file.empty())
    write_file_atomically(file, hostfile_text(measurements, diagnosis));
  return diagnosis.passed.size() == measurements.hosts.size() && diagnosis.problems.empty() ? exit_success : exit_fault;
}

}  // namespace ddprun::doctor
