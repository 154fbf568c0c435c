#pragma once

#include <fstream>
#include <string>

#include <fmt/format.h>

#include "launcher/placement/cpu_list.h"
#include "tests/support/temp_dir.h"

// The files of /sys and /proc of other machines, in a temporary folder.
namespace ddprun::testing {

class FakeMachine {
 public:
  const std::filesystem::path& root() const { return folder_.path(); }

  void write(const std::string& path, const std::string& text) const {
    const auto file = root() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  void cpu(int number, const std::string& siblings, int package, const std::string& sharing_l3) const {
    const auto folder = fmt::format("sys/devices/system/cpu/cpu{}/", number);
    write(folder + "topology/thread_siblings_list", siblings);
    write(folder + "topology/physical_package_id", std::to_string(package));
    cache(folder + "cache/index0/", 1, "Data", siblings);
    cache(folder + "cache/index1/", 1, "Instruction", siblings);
    cache(folder + "cache/index2/", 2, "Unified", siblings);
    if (!sharing_l3.empty()) cache(folder + "cache/index3/", 3, "Unified", sharing_l3);
  }

  void nodes(const std::vector<std::string>& cpus_of_node) const {
    write("sys/devices/system/node/online", fmt::format("0-{}", cpus_of_node.size() - 1));
    for (std::size_t i = 0; i < cpus_of_node.size(); ++i)
      write(fmt::format("sys/devices/system/node/node{}/cpulist", i), cpus_of_node[i]);
  }

  void on_pci_bus(const std::string& address, const std::string& vendor, const std::string& device_class, int node,
                  const std::string& driver) const {
    const auto folder = "sys/bus/pci/devices/" + address + "/";
    write(folder + "vendor", vendor);
    write(folder + "class", device_class);
    write(folder + "numa_node", std::to_string(node));
    if (!driver.empty())
      std::filesystem::create_symlink("../../../../bus/pci/drivers/" + driver, root() / folder / "driver");
  }

  // Adds an NVIDIA GPU of a machine with NVIDIA's driver.
  void gpu(int minor, const std::string& address, int node, const std::string& uuid) const {
    on_pci_bus(address, "0x10de", "0x030200", node, "nvidia");
    write("proc/driver/nvidia/gpus/" + address + "/information",
          fmt::format("Model: \t\t NVIDIA H100\nGPU UUID: \t {}\nBus Location: \t {}\nDevice Minor: \t {}", uuid,
                      address, minor));
    write(fmt::format("dev/nvidia{}", minor), "");
  }

 private:
  void cache(const std::string& folder, int level, const std::string& type, const std::string& sharing) const {
    write(folder + "level", std::to_string(level));
    write(folder + "type", type);
    write(folder + "shared_cpu_list", sharing);
  }

  TempDir folder_;
};

// Two packages with two nodes each; each node has two caches of four cores with two threads. The second threads have
// the numbers after all first ones: node n has CPUs 8n..8n+7 and 8n+32..8n+39. No GPU.
inline void two_socket_amd(const FakeMachine& machine) {
  for (int core = 0; core < 32; ++core) {
    const int cache = core / 4 * 4;
    const auto siblings = fmt::format("{},{}", core, core + 32);
    const auto sharing = fmt::format("{}-{},{}-{}", cache, cache + 3, cache + 32, cache + 35);
    for (const int cpu : {core, core + 32}) machine.cpu(cpu, siblings, core / 16, sharing);
  }
  machine.nodes({"0-7,32-39", "8-15,40-47", "16-23,48-55", "24-31,56-63"});
}

// Adds two GPUs on each of the four nodes. In bus order, 0 and 1 are on node 2, 2 and 3 on node 3, 4 and 5 on node 0.
inline void eight_gpus(const FakeMachine& machine) {
  const int nodes[] = {2, 2, 3, 3, 0, 0, 1, 1};
  for (int i = 0; i < 8; ++i)
    machine.gpu(i, fmt::format("0000:{:x}1:00.0", i + 1), nodes[i], fmt::format("GPU-{}aa", i));
}

inline CpuList cpus(const std::string& text) {
  return parse_cpu_list(text).value();
}

inline CpuList first_cpus(int count) {
  CpuList list;
  for (int cpu = 0; cpu < count; ++cpu) list.push_back(cpu);
  return list;
}

}  // namespace ddprun::testing
