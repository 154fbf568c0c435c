// PyTorch over ddprun on two hosts: shared memory within each, Gloo between them.
#include "tests/multihost/hosts.h"
#include "tests/support/torch_python.h"

using namespace ddprun::testing;

namespace {

constexpr std::pair<int, int> oldest_torch{2, 14};
constexpr std::chrono::seconds timeout{400};  // the back end may have to be compiled first

// The processes share no memory with those of another host, which it detects by the namespace of their process ids.
Words on_host(const NetnsHosts& net, int host, const Words& words) {
  const std::string name = "host" + std::to_string(host);
  return Hosts::behind(
      Hosts::behind(net.enter(host), {"/usr/bin/unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child",
                                      "sh", "-c", "hostname " + name + " && exec \"$@\"", "sh"}),
      words);
}

}  // namespace

TEST_CASE("PyTorch over ddprun: a death on either of two hosts is named on both") {
  need_hosts();
  const auto python = find_torch(oldest_torch);
  if (!python) SKIP("neither DDPRUN_TORCH_PYTHON nor python3 has torch 2.14 or newer");
  const NetnsHosts net(2);
  for (const int victim : {1, 3}) {
    const auto start = [&](int host) {
      return Child(on_host(net, host,
                           {python->path, PYTHON_TESTS "/hosts.py", std::to_string(host), net.address(0), "29511",
                            std::to_string(victim)}),
                   {{"PYTHONPATH", PYTHON_PACKAGES},
                    {"PYTHONWARNINGS", "ignore"},
                    {"DDPRUN_BUILD_DIR", DDPRUN_BUILD_FOLDER},
                    {"DDPRUN_CACHE_DIR", DDPRUN_BUILD_FOLDER "/torch-cache"},
                    {"OMP_NUM_THREADS", "1"}});
    };
    auto first = start(0), second = start(1);
    const auto result = first.wait(timeout), other = second.wait(timeout);
    const std::string said = result.out + other.out;
    INFO(said << result.err << other.err);
    CHECK(result.code == 0);
    CHECK(other.code == 0);
    CHECK_THAT(result.err + other.err, Catch::Contains("the 4 ranks run on 2 hosts"));
    for (int rank = 0; rank < 4; ++rank)
      if (rank != victim)
        CHECK_THAT(said, Catch::Matches("[^]*rank " + std::to_string(rank) + ": after [0-9.]+ s: ddprun: rank " +
                                        std::to_string(victim) + " \\(pid [0-9]+ on host host" +
                                        std::to_string(victim / 2) + "\\) was lost: its process died[^]*"));
  }
}
