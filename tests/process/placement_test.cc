#include "launcher/placement/placement.h"

#include <filesystem>
#include <fstream>

#include "common/host_port.h"
#include "launcher/placement/affinity.h"
#include "launcher/placement/gpus.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// Real workers print their affinity. The expected values come from the same division, which placement's unit tests
// check on many kinds of machines.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

// Returns the text after the label in each worker's output, by local rank.
Words values_of(const std::string& out, const std::string& label, int workers) {
  Words result(static_cast<std::size_t>(workers), "nothing");
  for (int worker = 0; worker < workers; ++worker) {
    const auto prefix = workers == 1 ? label : "[default" + std::to_string(worker) + "]:" + label;
    for (const auto& line : lines_of(out))
      if (line.starts_with(prefix)) result[static_cast<std::size_t>(worker)] = line.substr(prefix.size());
  }
  return result;
}

Child::Result affinities(Words options) {
  options.insert(options.begin(), {DDPRUN_PROGRAM, "--standalone"});
  options.insert(options.end(), {"/bin/grep", "Cpus_allowed_list", "/proc/self/status"});
  return run_child(options);
}

const std::string label = "Cpus_allowed_list:\t";

Words expected_affinities(int workers, Binding binding) {
  const auto own = current_affinity();
  Words result;
  for (const auto& place : place_workers({.workers = workers, .binding = binding}, Environment::capture(), own).workers)
    result.push_back(format_cpu_list(place.cpus.empty() ? own : place.cpus));
  return result;
}

// Binds this thread, and so every child, for a scope.
class Bound {
 public:
  explicit Bound(const CpuList& cpus) { REQUIRE(CpuMask(cpus).apply() == 0); }
  ~Bound() { CpuMask(before_).apply(); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  CpuList before_ = current_affinity();
};

}  // namespace

TEST_CASE("the affinity of the workers follows --bind") {
  const std::map<std::string, Binding> words = {{"none", Binding::none},
                                                {"cores", Binding::cores},
                                                {"l3", Binding::l3},
                                                {"numa", Binding::numa},
                                                {"socket", Binding::socket}};
  for (const auto& [word, binding] : words) {
    INFO(word);
    const auto result = affinities({"--nproc_per_node=2", "--bind=" + word});
    CHECK(result.code == 0);
    CHECK(values_of(result.out, label, 2) == expected_affinities(2, binding));
  }
}

TEST_CASE("option --numa_binding binds each worker near its GPU") {
  if (!discover_gpus({}).empty()) SKIP("this machine has GPUs of its own");
  CHECK(affinities({"--numa-binding=node"}).err ==
        "[ddprun] error: --numa_binding = node: no NVIDIA GPU is visible here; --bind works without GPUs\n");

  // Two GPUs are on a fake PCI bus that only this ddprun sees.
  const TempDir bus;
  for (const char* address : {"0000:0a:00.0", "0000:0b:00.0"}) {
    std::filesystem::create_directories(bus / address);
    std::ofstream(bus / address / "vendor") << "0x10de\n";
    std::ofstream(bus / address / "class") << "0x030200\n";
    std::ofstream(bus / address / "numa_node") << "0\n";
    std::filesystem::create_symlink("nvidia", bus / address / "driver");
  }
  const auto on_this_bus = [&](const std::string& command) {
    const auto script = "mount --bind " + bus.path().string() + " /sys/bus/pci/devices && exec " + command;
    return run_child({"/usr/bin/unshare", "-m", "/bin/sh", "-c", script});
  };
  if (const auto probe = on_this_bus("/bin/true"); probe.code != 0) SKIP("no mount namespace here: " + probe.err);
  const auto with_gpus = [&](const std::string& options) {
    return on_this_bus(DDPRUN_PROGRAM " --standalone --nproc-per-node=2 " + options +
                       " /bin/grep Cpus_allowed_list /proc/self/status");
  };
  const auto unbound = with_gpus("");
  CHECK(values_of(unbound.out, label, 2) == Words(2, format_cpu_list(current_affinity())));
  CpuList node;
  for (const auto& core : read_cores(current_affinity()))
    if (core.node == 0) node.insert(node.end(), core.cpus.begin(), core.cpus.end());
  std::sort(node.begin(), node.end());
  if (node.empty()) SKIP("no CPU of NUMA node 0 may be used here");
  CHECK(values_of(with_gpus("--numa-binding=node").out, label, 2) == Words(2, format_cpu_list(node)));
  if (count_cores(node) < 2) SKIP("NUMA node 0 has a single core");
  const auto exclusive = values_of(with_gpus("--numa-binding=exclusive").out, label, 2);
  CHECK(intersection(*parse_cpu_list(exclusive[0]), *parse_cpu_list(exclusive[1])).empty());
  CHECK(exclusive[0] != format_cpu_list(node));
}

TEST_CASE("bound to cores, two workers share none, and more workers than cores share some, with a line") {
  const auto own = current_affinity();
  const auto sets = expected_affinities(2, Binding::cores);
  if (count_cores(own) < 2) SKIP("this machine has a single core");
  CHECK(intersection(*parse_cpu_list(sets[0]), *parse_cpu_list(sets[1])).empty());

  const Bound bound({own.back()});
  const auto result = affinities({"--nproc_per_node=2", "--bind=cores"});
  CHECK(values_of(result.out, label, 2) == Words(2, std::to_string(own.back())));
  CHECK(result.err == "[ddprun] info: --bind = cores: more workers (2) than cores (1); several share one\n");
}

TEST_CASE("the cores are divided among the workers as OpenMP threads, unless the user has set a number") {
  const auto threads = [](Words options, const Variables& variables = {}) {
    options.insert(options.begin(), {"/usr/bin/env", "-u", "OMP_NUM_THREADS"});
    for (const auto& [name, value] : variables) options.insert(options.end(), name + "=" + value);
    options.insert(options.end(), {DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "/usr/bin/env"});
    return values_of(run_child(options).out, "OMP_NUM_THREADS=", 2);
  };
  const auto places = place_workers({.workers = 2}, {}, current_affinity()).workers;
  CHECK(threads({}) == Words(2, std::to_string(places[0].threads)));
  CHECK(threads({}, {{"OMP_NUM_THREADS", "7"}}) == Words(2, "7"));
}

TEST_CASE("a dry run prints what would be started, and starts nothing") {
  const TempDir folder;
  const auto result =
      run_child({DDPRUN_PROGRAM, "--dry_run", "--nnodes=2", "--node_rank=1", "--nproc_per_node=2", "--bind=cores",
                 "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:1", "--log_dir=" + (folder / "logs").string(),
                 VICTIM_PROGRAM, "touch=" + (folder / "started").string(), "out=${local_rank} it's"});
  CHECK(result.code == 0);
  CHECK(result.err.empty());
  std::string out;  // with single blanks: the columns are as wide as the host's name
  for (const char c : result.out)
    if (c != ' ' || !out.ends_with(' ')) out += c;
  const auto sets = expected_affinities(2, Binding::cores);
  for (const auto& part :
       Words{"a preview of this node, on which 2 workers would run; nothing is started\n",
             "c10d at 127.0.0.1:1; this node would serve it, unless another process of this host",
             "\n 0 2 " + local_host_name() + " - " + sets[0] + " ",
             "\n 1 3 " + local_host_name() + " - " + sets[1] + " ", "\n MASTER_ADDR=?\n", "\n WORLD_SIZE=4\n",
             "\nworker 1:\n LOCAL_RANK=1\n", "\n RANK=3\n", "'out=1 it'\\''s'\n"}) {
    INFO(part);
    CHECK(out.find(part) != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(folder / "started"));
  CHECK_FALSE(std::filesystem::exists(folder / "logs"));
}

TEST_CASE("a dry run of several nodes does not wait for the others") {
  const auto result = run_child({DDPRUN_PROGRAM, "--dry_run", "--nnodes=2", "/bin/true"});
  CHECK(result.code == 0);
  CHECK(result.out.find("nothing is started") != std::string::npos);
  CHECK(result.err.empty());
}

TEST_CASE("an unknown value of --bind, and an error in a dry run, are usage errors") {
  CHECK(affinities({"--bind=core"}).err ==
        "[ddprun] error: --bind: launch.bind = core: expected one of none, cores, l3, numa, socket\n");
  const auto result = run_child({DDPRUN_PROGRAM, "--dry_run", "--nnodes=0", "/bin/true"});
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK(run_child({DDPRUN_PROGRAM, "--dry_run", "--hosts=a,b", "/bin/true"}).err ==
        "[ddprun] error: --dry_run looks at one node: run it there, without --hosts and --hostfile\n");
}
