#include <filesystem>

#include "tests/multihost/hosts.h"

// Two hosts without a common file system: each has a folder of checkpoints of its own, under the same name.
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds timeout{100};
const Variables one_thread{{"OMP_NUM_THREADS", "1"}};

class PrivateFolders {
 public:
  PrivateFolders() {
    std::filesystem::create_directories(folder());
    for (const int host : {0, 1}) std::filesystem::create_directories(private_folder(host));
  }

  // Runs the job with a rank on each host, which has that rank or, if swapped, the other one. Returns its output.
  std::string run(const Words& overrides, bool swapped = false) const {
    auto first = start(swapped ? 1 : 0, 0, overrides);
    auto second = start(swapped ? 0 : 1, 1, overrides);
    const auto a = first.wait(timeout), b = second.wait(timeout);
    const auto all = a.out + a.err + b.out + b.err;
    INFO(all);
    REQUIRE(a.code == 0);
    REQUIRE(b.code == 0);
    return all;
  }
  std::filesystem::path private_folder(int host) const { return training_.folder / ("private" + std::to_string(host)); }

 private:
  std::filesystem::path folder() const { return training_.folder / "checkpoints"; }

  Child start(int host, int node, const Words& overrides) const {
    auto words = hosts_.net.enter_isolated(host);
    const auto script = "mount --make-rprivate / && mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
    for (const auto& word : {std::string("/usr/bin/unshare"), std::string("--mount"), std::string("/bin/sh"),
                             std::string("-c"), std::string(script), private_folder(host).string(), folder().string()})
      words.push_back(word);
    const Words launch{"--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--node_rank=" + std::to_string(node),
                       "--rdzv_endpoint=" + hosts_.endpoint()};
    Words all{"--eval.every_epochs=0", "--dist.backend=gloo"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return Child(Hosts::behind(words, training_.job(launch, all)), one_thread);
  }

  const Hosts hosts_{2};
  const Training training_;
};

void need_private_folders() {
  need_hosts();
  if (const auto why = NetnsHosts::why_not_isolated(); !why.empty()) SKIP(why);
}

std::string resumed_at(int step) {
  return "going on from the checkpoint of step " + std::to_string(step) + " in ";
}

}  // namespace

TEST_CASE("ranks on hosts without a common file system resume from their parts, also with the hosts exchanged") {
  need_private_folders();
  const auto undisturbed = parameters_of(PrivateFolders().run({"--parallel.zero=1"}));
  REQUIRE(undisturbed.size() == 64);
  const bool swapped = GENERATE(false, true);
  const std::string zero = GENERATE("1", "3");
  const PrivateFolders folders;
  folders.run({"--parallel.zero=" + zero, "--train.max_steps=30"});
  for (const int host : {0, 1}) {
    const auto checkpoint = folders.private_folder(host) / "step_000030";
    for (const int rank : {0, 1})
      CHECK(std::filesystem::exists(checkpoint / ("part_0000" + std::to_string(rank) + ".safetensors")) ==
            (rank == host));
    CHECK(std::filesystem::exists(checkpoint / "manifest.json"));
  }
  const auto output = folders.run({"--parallel.zero=" + zero}, swapped);
  CHECK(output.find(resumed_at(30)) != std::string::npos);
  CHECK(parameters_of(output) == undisturbed);
}

TEST_CASE("a checkpoint of which no host has a part is skipped, and the line names the file") {
  need_private_folders();
  const PrivateFolders folders;
  folders.run({"--parallel.zero=1", "--train.max_steps=30"});
  std::filesystem::remove(folders.private_folder(1) / "step_000030/part_00001.safetensors");
  const auto output = folders.run({"--parallel.zero=1"});
  CHECK(output.find("step_000030 is damaged and skipped: no rank sees the file ") != std::string::npos);
  CHECK(output.find("step_000030/part_00001.safetensors") != std::string::npos);
  CHECK(output.find(resumed_at(28)) != std::string::npos);
}
