#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>

#include "common/unique_fd.h"
#include "launcher/hosts/remote_protocol.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// The agent that ddprun --hosts starts on a host; this test acts as the starter.
using namespace ddprun::testing;

TEST_CASE("two signals that arrive together count as two for an agent on a host: the workers are killed") {
  // The kernel merges two signals only occasionally.
  for (int round = 0; round < 8; ++round) {
    const Marker marker;
    const TempDir folder;
    const auto input = (folder / "input").string(), up = (folder / "up").string();
    REQUIRE(::mkfifo(input.c_str(), 0600) == 0);
    const ddprun::UniqueFd pipe(::open(input.c_str(), O_RDWR | O_CLOEXEC));
    const auto request = ddprun::encode(ddprun::LaunchRequest{
        .directory = folder.path().string(),
        .environment = {},
        .arguments = {"--standalone", "--shutdown_timeout=3600", VICTIM_PROGRAM, "ignore=15", "touch=" + up, "pause"},
        .options = {}});
    REQUIRE(::write(pipe.get(), request.data(), request.size()) == static_cast<ssize_t>(request.size()));
    Child agent({"/bin/sh", "-c", "exec " DDPRUN_PROGRAM " --remote_agent=x <" + input}, marker.variables());
    agent.wait_until([&] { return std::filesystem::exists(up); }, "the worker");
    const char twice[] = {SIGTERM, SIGTERM};
    REQUIRE(::write(pipe.get(), twice, sizeof(twice)) == sizeof(twice));
    CHECK(agent.wait().code == 128 + SIGTERM);
    CHECK(marker.processes() == 0);
  }
}
