#include "worker/comm/error_file.h"

#include <csignal>
#include <cstdlib>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <boost/json.hpp>

#include "common/atomic_file.h"
#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using ddprun::testing::TempDir;

TEST_CASE("the error file has the shape that torchelastic's agents read") {
  TempDir dir;
  const std::string message = "rank 1 said \"no\"\nand left";
  write_error_file(dir / "error.json", message, 1700000000);
  const auto file = boost::json::parse(read_whole_file(dir / "error.json"));
  CHECK(file.at("message").at("message").as_string() == message);
  CHECK(file.at("message").at("extraInfo").at("timestamp").as_string() == "1700000000");
  CHECK(file.at("message").at("extraInfo").at("py_callstack").is_string());
  CHECK_FALSE(file.at("message").at("extraInfo").as_object().contains("consequence"));
  write_error_file(dir / "error.json", message, 1700000000, FailureKind::consequence);
  CHECK(boost::json::parse(read_whole_file(dir / "error.json")).at("message").at("extraInfo").at("consequence") ==
        true);
  write_error_file(dir / "error.json", message, 1700000000, FailureKind::usage_error);
  const auto usage = boost::json::parse(read_whole_file(dir / "error.json")).at("message").at("extraInfo").as_object();
  CHECK(usage.at("usage_error") == true);
  CHECK_FALSE(usage.contains("consequence"));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);  // no temporary file remains
}

TEST_CASE("an error file that cannot be written is an error that names it") {
  CHECK_THROWS_AS(write_error_file("/nonexistent/error.json", "x", 0), Error);
}

namespace {

// The result of a child process whose main function is body.
struct Left {
  int status = 0;
  std::string message;  // text of the error file; empty when there is none
};

Left run_recorded(const std::function<void()>& body) {
  const TempDir dir;
  const auto path = dir / "error.json";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{0, 0};  // an abort here is intended
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
    ::_exit(record(body));
  }
  Left left;
  ::waitpid(child, &left.status, 0);
  if (std::filesystem::exists(path)) {
    const auto file = boost::json::parse(read_whole_file(path));
    left.message = file.at("message").at("message").as_string();
  }
  return left;
}

}  // namespace

TEST_CASE("an exception that leaves a recorded main function is in the error file and the exit code") {
  const auto fine = run_recorded([] {});
  CHECK(WEXITSTATUS(fine.status) == 0);
  CHECK(fine.message.empty());
  const auto failed = run_recorded([] { throw std::runtime_error("boom"); });
  CHECK(WEXITSTATUS(failed.status) == 1);
  CHECK(failed.message == "boom");
  CHECK(WEXITSTATUS(run_recorded([] { throw Error(Errc::usage, "bad"); }).status) == 2);
}

TEST_CASE("an exception that leaves a thread is in the error file before the process aborts") {
  const auto left = run_recorded([] { std::thread([] { throw std::runtime_error("in a thread"); }).join(); });
  CHECK(WIFSIGNALED(left.status));
  CHECK(WTERMSIG(left.status) == SIGABRT);
  CHECK(left.message == "in a thread");
}
