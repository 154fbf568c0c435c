// MPI jobs over two hosts: of mpirun, without MASTER_ADDR, and of ddprun.
#include <filesystem>
#include <fstream>

#include "tests/multihost/hosts.h"
#include "tests/process/worker.h"

using namespace ddprun::testing;

namespace {

// Returns the command that mpirun runs instead of ssh: [option...] host command...
std::string remote_shell(const NetnsHosts& net, const TempDir& folder) {
  const auto path = (folder / "shell").string();
  std::ofstream script(path);
  script << "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n";
  for (const int host : {0, 1}) {
    script << net.address(host) << ") exec";
    for (const auto& word : net.enter(host)) script << ' ' << word;
    script << " sh -c \"$*\" ;;\n";
  }
  script << "esac\n";
  script.close();
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

Words command(const std::string& mpi, const NetnsHosts& net, const std::string& shell) {
  if (mpi == "mpich") {
    return {"/usr/bin/mpirun.mpich",
            "-launcher",
            "ssh",
            "-launcher-exec",
            shell,
            "-hosts",
            net.address(0) + "," + net.address(1),
            "-n",
            "4",
            "-ppn",
            "2"};
  }
  // Shared memory is excluded: its files are named by the host's name, which these hosts have in common.
  return {"/usr/bin/mpirun.openmpi",
          "--mca",
          "plm_rsh_agent",
          shell,
          "--mca",
          "orte_keep_fqdn_hostnames",
          "1",
          "--mca",
          "pml",
          "ob1",
          "--mca",
          "btl",
          "tcp,self",
          "--oversubscribe",
          "-H",
          net.address(0) + ":2," + net.address(1) + ":2",
          "-n",
          "4"};
}

}  // namespace

#ifdef MPI_PROGRAM
TEST_CASE("ddprun starts an MPI program on two hosts") {
  need_hosts();
  const Hosts hosts(2);
  const auto node = [&](int host) {
    return Child(Hosts::behind(hosts.net.enter(host), {DDPRUN_PROGRAM, "--mpi=pmi1", "--nnodes=2", "--nproc_per_node=2",
                                                       "--rdzv_endpoint=" + hosts.endpoint(), MPI_PROGRAM, "sum"}),
                 hosts.marker.variables());
  };
  auto first = node(0), second = node(1);
  const auto result = first.wait(std::chrono::seconds(60)), other = second.wait(std::chrono::seconds(60));
  INFO(result.out << result.err << other.out << other.err);
  CHECK(result.code == 0);
  CHECK(other.code == 0);
  for (const auto* rank : {"0", "1", "2", "3"})
    CHECK((result.out + other.out).find(std::string("rank ") + rank + " of 4, 2 on this host: sum 6") !=
          std::string::npos);
  CHECK(hosts.marker.processes() == 0);
}
#endif

TEST_CASE("workers of mpirun on several hosts find rank 0 by themselves") {
  need_hosts();
  const NetnsHosts net(2);
  const TempDir folder;
  const auto shell = remote_shell(net, folder);
  int tried = 0;
  for (const auto* mpi : {"mpich", "openmpi"}) {
    INFO(mpi);
    auto words = Hosts::behind(net.enter(0), command(mpi, net, shell));
    const auto module = std::filesystem::path(DDPRUN_WORKER).parent_path() / "../lib/libddprun_mpi_";
    if (!std::filesystem::exists(module.string() + mpi + ".so") ||
        !std::filesystem::exists(std::string("/usr/bin/mpirun.") + mpi))
      continue;
    ++tried;
    // Gloo's addresses are those towards rank 0.
    for (const auto& each : {std::string(DDPRUN_WORKER), config("linear.cfg").string(), std::string("--train.epochs=1"),
                             std::string("--dist.backend=gloo")})
      words.push_back(each);
    const auto result =
        Child(words,
              {{"OMP_NUM_THREADS", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}})
            .wait(std::chrono::seconds(60));
    INFO(result.out << result.err);
    CHECK(result.code == 0);
    CHECK(result.out.find("done: 40 steps") != std::string::npos);
  }
  if (tried == 0) SKIP("no MPI is installed");
}
