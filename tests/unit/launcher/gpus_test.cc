#include "launcher/placement/gpus.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/fake_machine.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

Environment visible(const std::string& list) {
  return Environment({{"CUDA_VISIBLE_DEVICES", list}});
}

// Returns one digit of each GPU's address, which identifies it.
std::string found(const FakeMachine& machine, const Environment& environment = {}) {
  std::string text;
  for (const auto& gpu : discover_gpus(environment, machine.root()))
    text += gpu.address.empty() ? '?' : gpu.address.at(5);
  return text;
}

}  // namespace

TEST_CASE("GPUs that the driver lists, in bus order, with their NUMA nodes") {
  const FakeMachine machine;
  two_socket_amd(machine);
  machine.write("sys/devices/system/node/node1/distance", "10 20");
  eight_gpus(machine);
  const auto gpus = discover_gpus({}, machine.root());
  REQUIRE(gpus.size() == 8);
  CHECK(gpus[0].name == "0");
  CHECK(gpus[7].address == "0000:81:00.0");
  CHECK(gpus[0].node == 2);
  CHECK(gpus[7].node == 1);
}

TEST_CASE("CUDA_VISIBLE_DEVICES selects and orders GPUs, and an entry that is not a device ends it") {
  const FakeMachine machine;
  eight_gpus(machine);
  CHECK(found(machine, visible("3,0")) == "41");
  CHECK(found(machine, visible("")).empty());
  CHECK(found(machine, visible("-1")).empty());
  CHECK(found(machine, visible("1,-1,2")) == "2");
  CHECK(found(machine, visible("0,8,1")) == "1");
  CHECK(found(machine, visible("0,x,1")) == "1");
  CHECK(found(machine, visible("GPU-5aa,GPU-2")) == "63");
  CHECK(found(machine, visible("GPU-5aa,GPU-9")) == "6");
  CHECK(found(machine, visible("MIG-1234")) == "?");
  CHECK(discover_gpus(visible("5"), machine.root()).at(0).name == "5");
}

TEST_CASE("GPUs whose device file is missing do not count") {
  const FakeMachine machine;
  eight_gpus(machine);
  for (const int minor : {0, 1, 4}) std::filesystem::remove(machine.root() / fmt::format("dev/nvidia{}", minor));
  CHECK(found(machine) == "34678");
  CHECK(found(machine, visible("1")) == "4");
}

TEST_CASE("without the driver's folder, the GPUs on the PCI bus that use the driver count") {
  const FakeMachine machine;
  machine.on_pci_bus("0000:11:00.0", "0x10de", "0x030000", -1, "nvidia");
  machine.on_pci_bus("0000:21:00.0", "0x10de", "0x068000", -1, "nvidia");    // a switch
  machine.on_pci_bus("0000:31:00.0", "0x10de", "0x030200", -1, "vfio-pci");  // one of a virtual machine
  machine.on_pci_bus("0000:41:00.0", "0x10de", "0x030200", -1, "");          // one without a driver
  machine.on_pci_bus("0000:51:00.0", "0x1002", "0x030000", 0, "amdgpu");
  machine.on_pci_bus("0000:61:00.0", "0x10de", "0x030200", 0, "nvidia");
  CHECK(found(machine) == "16");
  CHECK(found(machine, visible("GPU-1,GPU-2")) == "??");
}

TEST_CASE("GPUs known only by their device files have an unknown address") {
  const FakeMachine machine;
  for (const char* name : {"nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm"})
    machine.write(std::string("dev/") + name, "");
  CHECK(found(machine) == "??");
  CHECK(discover_gpus(visible("1"), machine.root()).at(0).name == "1");
}

TEST_CASE("a NUMA node that the firmware does not report is known only if there is a single one") {
  const FakeMachine machine;
  machine.gpu(0, "0000:11:00.0", -1, "GPU-0");
  machine.nodes({"0-3"});
  CHECK(discover_gpus({}, machine.root()).at(0).node == 0);
  machine.nodes({"0-1", "2-3"});
  CHECK_FALSE(discover_gpus({}, machine.root()).at(0).node);
}

TEST_CASE("a machine without GPUs has none, whatever CUDA_VISIBLE_DEVICES says") {
  const FakeMachine machine;
  CHECK(discover_gpus({}, machine.root()).empty());
  CHECK(discover_gpus(visible("0,1"), machine.root()).empty());
}
