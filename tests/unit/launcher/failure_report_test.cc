#include "launcher/report/failure_report.h"

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "common/rank_label.h"
#include "rendezvous/membership/worker_failure.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;

TEST_CASE("error files in both of torchrun's shapes") {
  const auto record = parse_error_file(
      R"({"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack": "Traceback\n  x\n", "timestamp": "1700000000"}}})");
  REQUIRE(record);
  CHECK(record->message == "Traceback\n  x");
  CHECK(record->timestamp == 1700000000.0);
  const auto plain = parse_error_file(R"({"message": "text", "timestamp": 1700000000})");
  REQUIRE(plain);
  CHECK(plain->message == "text");
  CHECK(plain->timestamp == 1700000000.0);
  CHECK_FALSE(parse_error_file(R"({"message": "text"})")->timestamp);
}

TEST_CASE("an incomplete error file is ignored") {
  for (const char* bad : {"", "{", "[]", "{\"message\": {\"mess", "{}", "null", "3"}) {
    INFO(bad);
    CHECK_FALSE(parse_error_file(bad));
  }
}

TEST_CASE("a timestamp in whole seconds does not make a failure earlier than it was") {
  CHECK(failure_time_us(5'300'000, std::nullopt) == 5'300'000);
  CHECK(failure_time_us(5'300'000, 5.0) == 5'300'000);
  CHECK(failure_time_us(5'300'000, 3.0) == 3'999'999);
  CHECK(failure_time_us(5'300'000, 5.25) == 5'250'000);
  CHECK(failure_time_us(5'300'000, 9.0) == 5'300'000);
  // The values are nanoseconds, infinity, not a number.
  CHECK(failure_time_us(5'300'000, 1.7e18) == 5'300'000);
  CHECK(failure_time_us(5'300'000, std::numeric_limits<double>::infinity()) == 5'300'000);
  CHECK(failure_time_us(5'300'000, std::numeric_limits<double>::quiet_NaN()) == 5'300'000);
  CHECK(failure_time_us(5'300'000, -1.0) == 5'300'000);
}

TEST_CASE("a failure has the label that the worker wrote next to its error file") {
  const testing::TempDir folder;
  const FailedWorker worker{.rank = 5, .local_rank = 1, .host = "h", .error_file = (folder / "e").string()};
  CHECK(describe_failure(worker, {.pid = 7, .signal_number = 9}, 1).label.empty());
  write_rank_label(worker.error_file, "pipeline 1, data 0, tensor 1");
  const auto failure = describe_failure(worker, {.pid = 7, .signal_number = 9}, 1);
  CHECK(failure.label == "pipeline 1, data 0, tensor 1");
  CHECK(failure_text(failure) ==
        "rank 5 (pipeline 1, data 0, tensor 1, local rank 1, pid 7) on host h failed: ended by SIGKILL");
  CHECK_THAT(failure_summary("job", {failure}),
             Catch::Contains("rank      : 5 (local_rank: 1, pipeline 1, data 0, tensor 1)\n"));
  std::ofstream(folder / "e.label") << "stage \x1b[31m\nmore";
  CHECK(describe_failure(worker, {.pid = 7, .signal_number = 9}, 1).label == "stage \\x1b[31m");
}

TEST_CASE("a failure is described from its exit and its error file") {
  const testing::TempDir folder;
  const FailedWorker worker{
      .rank = 5, .local_rank = 1, .group_rank = 2, .host = "h", .error_file = (folder / "e").string()};
  const auto bare = describe_failure(worker, {.pid = 7, .signal_number = 9}, 1);
  CHECK(bare.message == "Signal 9 (SIGKILL) received by PID 7");
  CHECK(bare.error_file.empty());
  std::ofstream(folder / "e") << R"({"message": "boom", "timestamp": 4})";
  const auto described = describe_failure(worker, {.pid = 7, .code = 3}, 9'000'000);
  CHECK(described.message == "boom");
  CHECK(described.time_us == 4'999'999);
  CHECK(described.error_file == (folder / "e").string());
  CHECK(described.exit_code == 3);
  std::ofstream(folder / "e") << "{torn";
  CHECK(describe_failure(worker, {.pid = 7, .code = 3}, 9).message ==
        "(the error file is not valid JSON of torchrun's form)");
}

TEST_CASE("without an error file the cause is the exception at the end of a Python traceback") {
  const auto cause_after = [](const std::string& last_lines, int code = 1) {
    return describe_failure({.last_lines = last_lines}, {.pid = 7, .code = code}, 5).cause;
  };
  const std::string frames = "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g(x)\n    ^^^^\n";
  CHECK(cause_after(frames + "ValueError: boom") == "exit code 1: ValueError: boom");
  CHECK(cause_after(frames + "ValueError: boom\nand more\n[W] a warning at the end") ==
        "exit code 1: ValueError: boom");
  CHECK(cause_after(frames + "KeyError: 1\n\nDuring handling another occurred:\n\n" + frames + "OSError: no") ==
        "exit code 1: OSError: no");
  CHECK(cause_after("    h(x)\n  File \"b.py\", line 9, in h\n    1 / 0\nZeroDivisionError: division by zero") ==
        "exit code 1: ZeroDivisionError: division by zero");  // the beginning is cut off
  CHECK(cause_after(frames + "ValueError: caught, told of, and ended otherwise", 3).empty());
  CHECK(cause_after(frames).empty());
  CHECK(cause_after("out of luck").empty());
}

TEST_CASE("a scheduler's error file is the root cause's with its exit code, or a new one of that form") {
  const testing::TempDir folder;
  std::ofstream(folder / "e") << R"({"message": {"message": "boom", "extraInfo": {"timestamp": "4"}}})";
  CHECK(scheduler_error_file({.exit_code = 3, .error_file = (folder / "e").string()}) ==
        R"({"message":{"message":"boom","extraInfo":{"timestamp":"4"},"errorCode":3}})");
  const auto expected =
      R"({"message":{"message":"m","extraInfo":{"py_callstack":"m","timestamp":"5"},"errorCode":-9}})";
  CHECK(scheduler_error_file({.signal_number = 9, .time_us = 5'000'000, .message = "m"}) == expected);
  CHECK(scheduler_error_file({.signal_number = 9, .time_us = 5'000'000, .message = "m", .error_file = "/other/host"}) ==
        expected);
}

TEST_CASE("the root cause is the one observed first, of equals the lowest rank") {
  std::vector<WorkerFailure> failures{{.rank = 0, .time_us = 5}, {.rank = 2, .time_us = 3}, {.rank = 1, .time_us = 3}};
  root_cause_first(failures);
  CHECK(failures[0].rank == 1);
  CHECK(failures[1].rank == 2);
}

TEST_CASE("a usage error is read from the error file of a worker that exits with 2, and has no summary") {
  const testing::TempDir folder;
  const FailedWorker worker{.error_file = (folder / "e").string()};
  std::ofstream(folder / "e") << R"({"message": {"message": "a.cfg:1: no", "extraInfo": {"usage_error": true}}})";
  const auto failure = describe_failure(worker, {.pid = 7, .code = 2}, 1);
  CHECK(failure.usage_error);
  CHECK(failure.message == "a.cfg:1: no");
  CHECK(failure_summary("x", {failure}).empty());
  CHECK_FALSE(describe_failure(worker, {.pid = 7, .code = 1}, 1).usage_error);
  CHECK_FALSE(describe_failure(worker, {.pid = 7, .signal_number = 9}, 1).usage_error);
  std::ofstream(folder / "e") << R"({"message": {"message": "", "extraInfo": {"usage_error": true}}})";
  CHECK_FALSE(describe_failure(worker, {.pid = 7, .code = 2}, 1).usage_error);
}

TEST_CASE("the summary has torchrun's form, followed by the end of the root cause's standard error") {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const std::vector<WorkerFailure> failures{{.rank = 3,
                                             .local_rank = 1,
                                             .host = "node7",
                                             .pid = 4712,
                                             .exit_code = 7,
                                             .time_us = 1'700'000'000'000'000,
                                             .message = "Traceback\n  boom",
                                             .last_lines = "one\ntwo",
                                             .error_file = "/logs/error.json"},
                                            {.rank = 0,
                                             .host = "node6",
                                             .pid = 99,
                                             .signal_number = 15,
                                             .time_us = 1'700'000'001'000'000,
                                             .message = "Signal 15 (SIGTERM) received by PID 99"}};
  CHECK(failure_summary("train.py", failures) ==
        "====================================================\n"
        "train.py FAILED\n"
        "----------------------------------------------------\n"
        "Failures:\n"
        "[1]:\n"
        "  time      : 2023-11-14_22:13:21\n"
        "  host      : node6\n"
        "  rank      : 0 (local_rank: 0)\n"
        "  exitcode  : -15 (pid: 99)  (SIGTERM)\n"
        "  error_file: <N/A>\n"
        "  traceback : Signal 15 (SIGTERM) received by PID 99\n"
        "----------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2023-11-14_22:13:20\n"
        "  host      : node7\n"
        "  rank      : 3 (local_rank: 1)\n"
        "  exitcode  : 7 (pid: 4712) \n"
        "  error_file: /logs/error.json\n"
        "  traceback : Traceback\n"
        "    boom\n"
        "====================================================\n"
        "The end of rank 3's standard error:\n"
        "  one\n"
        "  two\n");
  CHECK(failure_summary("x", {}).empty());
}

TEST_CASE("the end of a standard error that only repeats the reason is left out of the summary") {
  const WorkerFailure failure{.message = "Traceback\nboom", .last_lines = "one\n[worker] error: boom"};
  CHECK(failure_summary("x", {failure}).find("standard error") == std::string::npos);
}

TEST_CASE("the rules of the summary are at most 60 wide, and a single failure is marked") {
  const auto text = failure_summary("x", {{.message = std::string(200, 'm')}});
  CHECK(text.starts_with(std::string(60, '=') + "\nx FAILED\n"));
  CHECK(text.find("Failures:\n  <NO_OTHER_FAILURES>\n") != std::string::npos);
}

TEST_CASE("the rules of the summary are as wide as its title and records, counted in characters") {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const WorkerFailure failure{.host = "h", .pid = 1, .exit_code = 1, .message = "m\u00e4"};
  CHECK(failure_summary("x", {failure}).starts_with(std::string(33, '=') + "\nx FAILED\n"));  // "  time      : ..."
  auto longer = failure;
  longer.message = std::string(22, 'm') + "\u00e4";
  CHECK(failure_summary("x", {longer}).starts_with(std::string(37, '=') + "\nx FAILED\n"));
}
