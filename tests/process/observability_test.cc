#include <boost/json.hpp>

#include "ddprun/common/atomic_file.h"
#include "tests/process/training.h"
#include "tests/support/browser.h"
#include "tests/support/catch.h"

// What those who watch a running job see of it.
namespace ddprun::testing {
namespace {

// A job that trains until it is stopped, in a runtime folder of its own.
struct WatchedJob {
  Training training;
  TempDir runtime;

  Variables variables() const {
    auto variables = training.marker.variables();
    variables["DDPRUN_RUNTIME_DIR"] = runtime.path().string();
    return variables;
  }
  Child start(const Words& launch) const {
    return Child(training.job(launch, {"--train.epochs=100000", "--checkpoint.every_steps=20"}), variables());
  }
  boost::json::value status() const {
    const auto result = Child({DDPRUN_PROGRAM, "status", "--json"}, variables()).wait();
    const auto document = boost::json::parse(result.out);
    const auto& jobs = document.at("jobs").as_array();
    return jobs.size() == 1 ? jobs[0] : boost::json::value();
  }
};

// "http://127.0.0.1:4000/#token" from a line of the agent.
std::string page_of(const Child& child) {
  std::smatch found;
  return std::regex_search(child.err(), found, std::regex("dashboard: (http://\\S+)")) ? found[1].str() : "";
}

bool trains(const boost::json::value& job) {
  return job.is_object() && job.get_object().contains("training") && job.at("training").at("step").as_int64() > 0;
}

}  // namespace

TEST_CASE("ddprun status shows how far a training is, and that it goes on") {
  const WatchedJob job;
  auto child = job.start(two_workers());
  boost::json::value seen;
  child.wait_until([&] { return trains(seen = job.status()); }, "the first step");
  const auto first = seen.at("training").at("step").as_int64();
  child.wait_until([&] { return (seen = job.status()).at("training").at("step").as_int64() > first; }, "more steps");
  const auto& training = seen.at("training");
  CHECK(training.at("total_steps").as_int64() == 100'000 * 50);
  CHECK(training.at("loss").as_double() > 0);
  CHECK(training.at("samples_per_s").as_double() > 0);
  CHECK(training.at("seconds_left").as_double() > 0);
  for (const auto& worker : seen.at("nodes").at(0).at("workers").as_array())
    CHECK(worker.at("training").at("step").as_int64() >= first);
  CHECK_THAT(Child({DDPRUN_PROGRAM, "status"}, job.variables()).wait().out, Catch::Contains("  training: step "));
  child.signal(SIGTERM);
  child.wait();
}

TEST_CASE("the page follows a job through the end of a worker, and asks nobody else") {
  if (!Browser::installed()) SKIP("Chromium is not installed (package chromium)");
  const WatchedJob job;
  auto child = job.start(two_workers({"--max_restarts=1", "--dashboard"}));
  child.wait_until([&] { return !page_of(child).empty(); }, "the page's address");
  const auto url = page_of(child);
  const auto origin = url.substr(0, url.find("#"));
  Browser browser;
  browser.send("Log.enable");
  browser.open(url);
  browser.wait_for("view.job !== null && view.job.state === 'training' && view.points.length > 1");
  CHECK(browser.text("location.hash") == "");    // the token has become a cookie
  CHECK(browser.text("document.cookie") == "");  // that no script can read
  const auto step = browser.evaluate("view.job.training.step").as_int64();
  browser.wait_for("view.job.training.step > " + std::to_string(step));
  browser.wait_for("$('sentence').textContent.startsWith('training, step ')");
  CHECK(browser.evaluate("document.querySelectorAll('.rank').length").as_int64() == 2);
  CHECK(browser.evaluate("document.querySelectorAll('#loss path.curve').length").as_int64() == 1);

  const auto victims = workers_of(job.training.marker, "1");
  REQUIRE(victims.size() == 1);
  ::kill(victims[0], SIGKILL);
  browser.wait_for("view.job.recoveries === 1 && view.job.state === 'training'");
  browser.wait_for("$('events').textContent.includes('was ended by SIGKILL')");
  browser.wait_for("$('generations').textContent.includes('restart ')");
  browser.evaluate("choose(1, true)");
  browser.wait_for("$('rank').textContent.startsWith('Rank 1: running, pid ')");

  child.signal(SIGKILL);
  child.wait();
  browser.wait_for("$('heard').textContent.startsWith('last heard ')");
  for (const auto& request : browser.requests()) {
    CAPTURE(request);
    CHECK((request.starts_with(origin) || request == "data:,"));
  }
  CHECK_THAT(browser.complaints(), !Catch::Contains("Content Security Policy") && !Catch::Contains("exception"));
}

TEST_CASE("a page of a thousand ranks fits a phone and the dark, and stays text") {
  if (!Browser::installed()) SKIP("Chromium is not installed (package chromium)");
  const WatchedJob job;
  auto child = job.start(two_workers({"--dashboard"}));
  child.wait_until([&] { return !page_of(child).empty(); }, "the page's address");
  Browser browser;
  browser.resize(375, 800, true);
  browser.open(page_of(child));
  browser.wait_for("view.job !== null && view.points.length > 0");
  browser.evaluate(
      "apply(Object.assign({}, view, {full: true, ranks: Array.from({length: 1000}, (_, i) => "
      "[i, i >> 3, i % 8, 100 + i, 1, i, 0.1, 0.6, 0.3]), events: [{ms: 1, kind: 'fault', text: '<img src=x "
      "onerror=alert(1)>', step: 1}]}))");
  browser.wait_for("document.querySelectorAll('.rank').length === 1000");
  browser.wait_for("$('events').textContent.includes('<img src=x')");
  CHECK(browser.evaluate("document.querySelectorAll('img').length").as_int64() == 0);
  CHECK(browser.evaluate("document.documentElement.scrollWidth <= innerWidth") == boost::json::value(true));
  CHECK(browser.text("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 24)");
  child.signal(SIGTERM);
  child.wait();
}

TEST_CASE("ddprun top prints one screen where there is no terminal") {
  const WatchedJob job;
  auto child = job.start(two_workers());
  child.wait_until([&] { return trains(job.status()); }, "the first step");
  const auto shown = Child({DDPRUN_PROGRAM, "top"}, job.variables()).wait();
  CHECK(shown.code == 0);
  CHECK_THAT(shown.out, Catch::StartsWith("none (train.cfg) on host ") && Catch::Contains("training, step ") &&
                            Catch::Contains("\nranks       ") && !Catch::Contains("\x1b"));
  child.signal(SIGTERM);
  child.wait();
  const auto none = Child({DDPRUN_PROGRAM, "top"}, job.variables()).wait();
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Catch::Contains("no such job of this user runs on this machine"));
}

TEST_CASE("ddprun report writes the page of a job whose agent was killed") {
  const WatchedJob job;
  const auto logs = job.training.folder / "logs";
  auto child = job.start(two_workers({"--log_dir=" + logs.string()}));
  child.wait_until([&] { return trains(job.status()); }, "the first step");
  const auto report = [&] { return run_child({DDPRUN_PROGRAM, "report", logs.string()}); };
  const auto page = [&] { return read_whole_file(std::string(report().out, 0, report().out.find('\n'))); };
  child.wait_until([&] { return page().find("\"state\":\"training\"") != std::string::npos; }, "the record of a step");
  child.signal(SIGKILL);
  child.wait();
  REQUIRE(report().code == 0);
  CHECK_THAT(page(), Catch::StartsWith("<!doctype html>") && Catch::Contains("generation 0: first round"));
  const auto elsewhere = run_child({DDPRUN_PROGRAM, "report", job.runtime.path().string()});
  CHECK(elsewhere.code == 2);
  CHECK_THAT(elsewhere.err, Catch::Contains("has no job.jsonl"));

  if (!Browser::installed()) return;
  Browser browser;
  browser.open("file://" + std::string(report().out, 0, report().out.find('\n')));
  browser.wait_for("$('sentence').textContent.startsWith('training, step ')");
  browser.wait_for("$('heard').textContent.startsWith('This is a record: it ends at ')");
  CHECK(browser.requests().size() <= 2);  // itself, and its icon, which is empty
}

TEST_CASE("a --dashboard address that is none, or in use, is refused with the reason") {
  const auto junk = run_child({DDPRUN_PROGRAM, "--standalone", "--dashboard=x", "/bin/true"});
  CHECK(junk.code == 2);
  CHECK_THAT(junk.err, Catch::Contains("--dashboard = x: expected PORT or ADDRESS:PORT"));
  const auto elsewhere = run_child({DDPRUN_PROGRAM, "--standalone", "--dashboard=192.0.2.1:8000", "/bin/true"});
  CHECK(elsewhere.code == 1);
  CHECK_THAT(elsewhere.err, Catch::Contains("--dashboard: cannot listen at 192.0.2.1:8000"));
}

}  // namespace ddprun::testing
