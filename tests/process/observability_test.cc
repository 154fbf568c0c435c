#include <boost/json.hpp>

#include "common/atomic_file.h"
#include "tests/process/training.h"
#include "tests/support/browser.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"
#include "tests/support/terminal_child.h"

// The views of a running job for those who watch it.
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

// Returns "http://127.0.0.1:4000/#token" from a line of the agent.
std::string page_of(const Child& child) {
  std::smatch found;
  return std::regex_search(child.err(), found, std::regex("dashboard: (http://\\S+)")) ? found[1].str() : "";
}

// The first thread of a process is a zombie before the others have ended.
bool can_be_reaped(pid_t pid) {
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task");
  return proc_text(std::to_string(pid), "stat").find(") Z") != std::string::npos &&
         std::distance(begin(threads), end(threads)) == 1;
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
  browser.wait_for("$('generations').textContent.includes('heal ')");
  browser.evaluate("choose(1, true)");
  browser.wait_for("$('rank').textContent.startsWith('Rank 1: running, pid ')");
  browser.wait_for("$('rank').textContent.includes('replaced once')");
  const auto successor = workers_of(job.training.marker, "1");
  REQUIRE(successor.size() == 1);
  CHECK(browser.evaluate("view.ranks[1][3]").as_int64() == successor[0]);

  // The page shows the agent's data about the rank, and about the collectives of all.
  browser.wait_for("$('details').textContent.includes('open files')");
  browser.wait_for("$('details').textContent.includes('Standard error')");
  browser.wait_for("[...document.querySelectorAll('#details dd')].some((e) => /#\\d+ allreduce/.test(e.textContent))");
  browser.wait_for("view.collectives.some((c) => c[1] === 'allreduce' && c[6] > 0)");
  browser.wait_for("/of \\d+/.test($('nodes').textContent)");
  CHECK(browser.evaluate("fetch('/metrics').then((a) => a.text()).then((t) => t.includes("
                         "'ddprun_collective_duration_seconds_count{op=\"allreduce\"}') && t.includes("
                         "'ddprun_store_operations_total{op='))") == boost::json::value(true));
  CHECK(browser.evaluate(
            "fetch('/trace').then((a) => a.json()).then((t) => t.traceEvents.some((e) => e.name === 'heal'))") ==
        boost::json::value(true));
  CHECK(browser.evaluate("fetch('/report').then((a) => a.text()).then((t) => t.startsWith('<!doctype html>') && "
                         "t.includes('was ended by SIGKILL'))") == boost::json::value(true));

  child.signal(SIGKILL);
  child.wait();
  browser.wait_for("$('heard').textContent.startsWith('last heard ')");
  for (const auto& request : browser.requests()) {
    CAPTURE(request);
    CHECK((request.starts_with(origin) || request == "data:,"));
  }
  CHECK_THAT(browser.complaints(), !Catch::Contains("Content Security Policy") && !Catch::Contains("exception"));
}

// observability_test "[pictures]" writes them into docs/, of a job of its own.
TEST_CASE("the pictures of the page in the documents", "[.pictures]") {
  const Training training;
  Words launch{"--standalone", "--nproc_per_node=4", "--max_restarts=3", "--dashboard"};
  Child child(training.job(launch, {"--train.epochs=40", "--data.samples=12800", "--train.log_every=50",
                                    "--checkpoint.every_steps=150"}),
              training.marker.variables());
  child.wait_until([&] { return !page_of(child).empty(); }, "the page's address");
  Browser browser;
  browser.resize(1240, 1700, false);
  browser.open(page_of(child));
  browser.wait_for("view.job !== null && view.points.length > 40", std::chrono::seconds(120));
  ::kill(workers_of(training.marker, "2").at(0), SIGKILL);
  browser.wait_for("view.job.recoveries === 1 && view.job.state === 'training'");
  const auto points = browser.evaluate("view.points.length").as_int64();
  browser.evaluate("choose(0, false)");
  browser.wait_for("view.points.length > " + std::to_string(points + 30) + " && view.collectives.length > 0",
                   std::chrono::seconds(120));
  const auto draw = [&](const std::string& name, int width, int height, bool dark) {
    browser.resize(width, height, dark);
    browser.evaluate("new Promise((done) => setTimeout(done, 500))");  // the next frames have the size
    const TempDir folder;
    std::ofstream(folder / "base64") << browser.screenshot();
    const auto result = run_child({"/bin/sh", "-c", "base64 -d \"$0\" > \"$1\"", (folder / "base64").string(),
                                   std::string(DDPRUN_DOCS) + "/" + name});
    CHECK(result.code == 0);
  };
  draw("dashboard.png", 1240, 1700, false);
  draw("dashboard-phone.png", 375, 1480, true);
  child.signal(SIGTERM);
  child.wait();
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

TEST_CASE("the page continues when the agent of its port is back, with the token of its file") {
  if (!Browser::installed()) SKIP("Chromium is not installed (package chromium)");
  const WatchedJob job;
  const auto port = std::to_string(free_port());
  const Words launch =
      two_workers({"--dashboard=" + port, "--dashboard_token_file=" + (job.training.folder / "token").string()});
  Browser browser;
  {
    auto child = job.start(launch);
    child.wait_until([&] { return !page_of(child).empty(); }, "the page's address");
    browser.open(page_of(child));
    browser.wait_for("view.job !== null && view.points.length > 0");
    child.signal(SIGKILL);
    child.wait();
  }
  browser.wait_for("$('heard').textContent.startsWith('last heard ')");
  CHECK_THAT(browser.text("$('heard').textContent"), Catch::Contains("it was training then"));
  const auto began = browser.evaluate("view.job.began").as_int64();
  auto child = job.start(launch);
  browser.wait_for("view.job.began > " + std::to_string(began) + " && view.job.state === 'training'");
  browser.wait_for("$('heard').textContent === ''");
  child.signal(SIGTERM);
  child.wait();
  browser.wait_for("view.job.state === 'failed' && $('sentence').textContent.includes('stopped by SIGTERM')");
}

TEST_CASE("a dashboard attaches to a job that runs without one, and says how the job ended as far as it knows") {
  if (!Browser::installed()) SKIP("Chromium is not installed (package chromium)");
  const WatchedJob job;
  const auto endpoint = "127.0.0.1:" + std::to_string(free_port());
  auto child = job.start(
      {"--nnodes=1", "--nproc_per_node=2", "--max_restarts=1", "--rdzv_backend=c10d", "--rdzv_endpoint=" + endpoint});
  child.wait_until([&] { return trains(job.status()); }, "the first step");
  Child attached({DDPRUN_PROGRAM, "dashboard", "--rdzv_endpoint=" + endpoint}, job.variables());
  attached.wait_until([&] { return !page_of(attached).empty(); }, "the page's address");
  Browser browser;
  browser.open(page_of(attached));
  browser.wait_for("view.job !== null && view.job.state === 'training' && view.ranks.length === 2");
  browser.wait_for("view.collectives.length > 0");
  // How many epochs there will be is not in what the rendezvous server tells.
  browser.wait_for("/Epoch\\d+$/m.test([...$('tiles').children].map((tile) => tile.textContent).join('\\n'))");
  const auto victims = workers_of(job.training.marker, "1");
  REQUIRE(victims.size() == 1);
  ::kill(victims[0], SIGKILL);
  browser.wait_for("view.job.recoveries === 1 && view.job.restarts_used === 1");
  browser.wait_for("view.ranks[1][3] !== " + std::to_string(victims[0]) + " && view.ranks[1][4] === 1");
  browser.evaluate("choose(1, true)");
  browser.wait_for("$('details').textContent.includes('the page of an agent there has them')");
  child.signal(SIGKILL);
  child.wait();
  browser.wait_for("$('heard').textContent.startsWith('last heard ')");
  attached.wait_until([&] { return attached.err().find("the job is not heard any more: ") != std::string::npos; },
                      "a line about the silence");
  attached.signal(SIGTERM);
  CHECK(attached.wait().code == 0);
  const auto none = Child({DDPRUN_PROGRAM, "dashboard", "--rdzv_endpoint=" + endpoint}, job.variables()).wait();
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Catch::Contains("the rendezvous server at " + endpoint));
}

TEST_CASE("ddprun dashboard refuses settings that are none") {
  const auto refused = [](const Words& words) {
    const auto result = run_child(words);
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK_THAT(refused({DDPRUN_PROGRAM, "dashboard", "--rdzv_conf=x=y"}),
             Catch::Contains("--rdzv_conf: 'x=y': ddprun dashboard takes only token_file=FILE and tls=on|off"));
  CHECK_THAT(refused({DDPRUN_PROGRAM, "dashboard", "--dashboard=x"}), Catch::Contains("expected PORT or ADDRESS:PORT"));
  CHECK_THAT(refused({DDPRUN_PROGRAM, "dashboard", "--rdzv_endpoint=127.0.0.1:1", "--rdzv_conf=token_file=/nowhere"}),
             Catch::Contains("/nowhere"));
}

TEST_CASE("status, metrics and events follow a worker that is replaced alone") {
  const WatchedJob job;
  const auto events = job.training.folder / "events";
  auto child =
      job.start(two_workers({"--max_restarts=2", "--dashboard", "--event_log_handler=file:" + events.string()}));
  boost::json::value seen;
  child.wait_until([&] { return trains(seen = job.status()); }, "the first step");
  const auto pid_of = [](const boost::json::value& status, int rank) {
    return status.at("nodes").at(0).at("workers").at(static_cast<std::size_t>(rank)).at("pid").as_int64();
  };
  const auto before = seen;
  ::kill(static_cast<pid_t>(pid_of(before, 0)), SIGKILL);  // the rank that reports for the whole job
  child.wait_until([&] { return trains(seen = job.status()) && seen.at("restarts_used").as_int64() == 1; },
                   "a restart");
  CHECK(pid_of(seen, 1) == pid_of(before, 1));
  CHECK(pid_of(seen, 0) != pid_of(before, 0));
  CHECK(seen.at("generation").as_int64() == 0);
  const auto step = seen.at("training").at("step").as_int64();
  child.wait_until([&] { return (seen = job.status()).at("training").at("step").as_int64() > step; }, "more steps");
  child.signal(SIGTERM);
  child.wait();
  std::map<std::string, int> counted;
  std::ifstream file(events);
  for (std::string line; std::getline(file, line);) {
    const auto event = boost::json::parse(line);
    if (const auto* source = event.as_object().if_contains("source"); source && *source == "WORKER")
      ++counted[std::string(event.at("metadata").at("state").as_string())];
  }
  CHECK(counted["START"] == 3);
  CHECK(counted["FAILED"] == 1);
}

TEST_CASE("the metric of restarts counts a worker that was replaced alone also in later rounds") {
  if (run_child({"/usr/bin/env", "curl", "--version"}).code != 0) SKIP("curl is not installed");
  const WatchedJob job;
  auto child = job.start(two_workers({"--max_restarts=2", "--dashboard"}));
  child.wait_until([&] { return trains(job.status()) && !page_of(child).empty(); }, "the first step");
  const auto page = page_of(child);
  const auto restarts = [&] {
    const auto token = "Authorization: Bearer " + page.substr(page.find('#') + 1);
    const auto metrics = run_child({"/usr/bin/env", "curl", "--silent", "--noproxy", "*", "--header", token,
                                    page.substr(0, page.find('#')) + "metrics"});
    std::smatch found;
    const std::regex sample(R"(ddprun_restarts_total\{cause="failure"\} (\d+))");
    return std::regex_search(metrics.out, found, sample) ? std::stoi(found[1]) : -1;
  };
  ::kill(workers_of(job.training.marker, "1").at(0), SIGKILL);
  child.wait_until([&] { return restarts() == 1 && workers_of(job.training.marker, "1").size() == 1; },
                   "a replacement");
  child.signal(SIGSTOP);  // so the agent learns of both ends at once: no rank is left, and all are restarted
  std::vector<pid_t> both;
  for (const char* rank : {"0", "1"}) both.push_back(workers_of(job.training.marker, rank).at(0));
  for (const pid_t pid : both) ::kill(pid, SIGKILL);
  for (const pid_t pid : both) child.wait_until([pid] { return can_be_reaped(pid); }, "the end of a killed worker");
  child.signal(SIGCONT);
  child.wait_for_err("new round");
  child.wait_until([&] { return restarts() != 1; }, "another restart");
  CHECK(restarts() == 2);
  child.signal(SIGTERM);
  child.wait();
}

TEST_CASE("ddprun top on a terminal says how the job ended, or that its agent is gone") {
  const int signal = GENERATE(SIGTERM, SIGKILL);
  const WatchedJob job;
  auto child = job.start(two_workers());
  child.wait_until([&] { return trains(job.status()); }, "the first step");
  TerminalChild top({DDPRUN_PROGRAM, "top"}, job.variables());
  top.wait_for("training, step ");
  child.signal(signal);
  child.wait();
  CHECK(top.wait() == 0);
  CHECK_THAT(top.text(), Catch::Contains(signal == SIGTERM ? "end: stopped by SIGTERM" : "last heard "));
}

TEST_CASE("the curve of the loss is printed at the end where it is asked for") {
  const Training training;
  constexpr std::chrono::seconds bound(100);
  const auto result = Child(training.job(two_workers({"--loss_curve=always"}), {"--data.samples=9600"})).wait(bound);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, Catch::Contains("\nloss ") && Catch::Contains(" after 300 steps, "));
  const auto without = Child(training.job(two_workers())).wait(bound);
  CHECK(without.err.find("loss ") == std::string::npos);
}

TEST_CASE("ddprun top prints one screen where there is no terminal") {
  const WatchedJob job;
  auto child = job.start(two_workers());
  Child::Result shown;
  const auto trains = [&] {
    shown = Child({DDPRUN_PROGRAM, "top"}, job.variables()).wait();
    return shown.out.find("training, step ") != std::string::npos;
  };
  child.wait_until(trains, "the first step");
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
  CHECK(browser.requests().size() <= 2);  // the page itself, and its icon, which is empty
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
