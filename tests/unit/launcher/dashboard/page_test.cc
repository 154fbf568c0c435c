#include "launcher/dashboard/page.h"

#include <fstream>

#include "launcher/dashboard/view_json.h"
#include "tests/support/browser.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/dashboard/model_time.h"

// The page itself, as a file, in a browser.
using namespace ddprun;
using namespace ddprun::dashboard;
using namespace ddprun::testing;

namespace {

const char* not_installed = "Chromium is not installed (package chromium)";

RankProgress rank_in_group(std::int64_t pid, double mean) {
  return {.record = RankRecord{
              .size = 2,
              .pid = pid,
              .host = "a",
              .timings = {{.kind = "allreduce", .bytes = 1 << 20, .count = 10, .seconds = 10 * mean, .median = mean}}}};
}

// A job with content in each panel.
WatchedModel full_job() {
  WatchedModel job;
  job.fail_after_ten_steps();
  job.recover();
  auto late = job.record(1, 10, 3);
  late.pid = 102;
  late.lateness = 0.3;
  late.checkpoint_step = 8;
  late.checkpoint_ms = job.now.count();
  job.model.training(job.now, 1, late);
  job.model.groups(job.now, {{"group/0", {rank_in_group(101, 0.004), rank_in_group(102, 0.001)}}});
  job.model.usage(job.now, {.processors = 8,
                            .busy = 2.5,
                            .memory = std::int64_t{16} << 30,
                            .memory_used = std::int64_t{4} << 30,
                            .received = 2e6,
                            .sent = 3e3,
                            .shared_memory = 64 << 20,
                            .shared_memory_used = 1 << 20});
  return job;
}

struct OpenPage {
  TempDir folder;
  Browser browser;

  explicit OpenPage(const std::string& page) { open(page); }
  void open(const std::string& page) {
    std::ofstream(folder / "page.html") << page;
    browser.open("file://" + (folder / "page.html").string());
    browser.wait_for("view.job !== null && $('sentence').textContent !== 'connecting'");
  }
  std::string text(const std::string& id) { return browser.text("$('" + id + "').textContent"); }
};

// Returns the least contrast (WCAG 2.1) of a text to its background, over all elements that have a text of their own,
// with the element that has it.
constexpr const char* least_contrast = R"js((() => {
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = numbers(color).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor, parts = numbers(color);
      if (parts.length < 4 || parts[3] > 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  let least = [99, ''];
  for (const element of document.body.querySelectorAll('*')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || ['SCRIPT', 'STYLE', 'TITLE'].includes(element.tagName.toUpperCase()) || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), svg = element.namespaceURI.endsWith('svg');
    const pair = [light(svg ? style.fill : style.color), light(behind(element))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < least[0]) least = [contrast, element.tagName + '.' + element.getAttribute('class') + ': ' + element.textContent.slice(0, 30)];
  }
  return least;
})())js";

}  // namespace

TEST_CASE("the page of a job has its nine panels, and asks nobody for anything") {
  if (!Browser::installed()) SKIP(not_installed);
  const auto job = full_job();
  OpenPage page(report_page({snapshot_json(job.model)}));
  CHECK_THAT(page.text("sentence"), Catch::StartsWith("training, step 10 of 100, 64 samples/s, goodput "));
  CHECK(page.browser.evaluate("document.querySelectorAll('#loss path.curve').length").as_int64() == 1);
  CHECK(page.browser.evaluate("document.querySelectorAll('#loss .fault').length").as_int64() == 1);
  CHECK(page.browser.evaluate("document.querySelectorAll('#loss .recovered').length").as_int64() == 1);
  CHECK(page.browser.evaluate("document.querySelectorAll('.rank').length").as_int64() == 2);
  CHECK(page.browser.text("document.querySelectorAll('.rank')[1].className") == "rank l4");
  CHECK_THAT(page.text("step-legend"), Catch::Contains("compute 75.0 %"));
  CHECK(page.browser.evaluate("document.querySelectorAll('#by-rank .bar').length").as_int64() == 2);
  CHECK_THAT(page.text("generations"),
             Catch::Contains("detect 200 ms, agree 300 ms, restart 1,500 ms, replay 2,000 ms"));
  CHECK_THAT(page.text("collectives"), Catch::Contains("allreduce") && Catch::Contains("1.00 MiB") &&
                                           Catch::Contains("1.05 GB/s") && Catch::Contains("rank 1, 3.00 ms each"));
  CHECK_THAT(page.text("nodes"), Catch::Contains("2.5 of 8") && Catch::Contains("4.00 GiB of 16.0 GiB") &&
                                     Catch::Contains("2.00 MB/s, 3.0 kB/s") && Catch::Contains("1.00 MiB of 64.0 MiB"));
  CHECK_THAT(page.text("events"), Catch::Contains("was ended by SIGKILL"));
  CHECK(page.browser.evaluate("document.querySelectorAll('.served').length").as_int64() == 3);
  CHECK(page.browser.requests().size() <= 2);  // the page itself, and its icon, which is empty
  CHECK(page.browser.complaints() == "");
}

TEST_CASE("a saved page shows what the page showed, and may be saved again") {
  if (!Browser::installed()) SKIP(not_installed);
  const auto job = full_job();
  OpenPage page(report_page({snapshot_json(job.model)}));
  const auto before = page.browser.text("document.querySelector('main').innerText");
  const auto sentence = page.text("sentence");
  page.open(page.browser.text("savedPage()"));
  page.open(page.browser.text("savedPage()"));
  CHECK(page.text("sentence") == sentence);
  CHECK(page.browser.text("document.querySelector('main').innerText") == before);
  CHECK_THAT(page.text("heard"), Catch::StartsWith("This is a record: it ends at "));
  CHECK(page.browser.complaints() == "");
}

TEST_CASE("text on the page is readable in light and in dark") {
  if (!Browser::installed()) SKIP(not_installed);
  const auto job = full_job();
  OpenPage page(report_page({snapshot_json(job.model)}));
  page.browser.evaluate("choose(0, false); $('waits').hidden = false; $('waits').textContent = 'rank 1 waits'");
  for (const bool dark : {false, true}) {
    page.browser.resize(1280, 1000, dark);
    const auto least = page.browser.evaluate(least_contrast);
    CAPTURE(dark, boost::json::serialize(least));
    CHECK(least.at(0).to_number<double>() >= 4.5);
  }
}

TEST_CASE("curves and ranks are reached by the keyboard, and curves have a text") {
  if (!Browser::installed()) SKIP(not_installed);
  const auto job = full_job();
  OpenPage page(report_page({snapshot_json(job.model)}));
  auto& browser = page.browser;
  const auto focused = [&] { return browser.text("document.activeElement.id || document.activeElement.className"); };
  CHECK_THAT(browser.text("$('loss').getAttribute('aria-label')"),
             Catch::StartsWith("Loss: 0.1 at step 10, lowest 0.1 at step 10"));
  CHECK_THAT(browser.text("$('rate').getAttribute('aria-label')"),
             Catch::StartsWith("Samples a second: 64 at step 10"));
  const auto tab_to = [&](const std::string& wanted) {
    for (int i = 0; i < 20 && focused() != wanted; ++i) browser.press("Tab");
    CHECK(focused() == wanted);
  };
  tab_to("loss");
  browser.press("Home");
  CHECK_THAT(page.text("loss-text"), Catch::StartsWith("step 1: 1, "));
  browser.press("ArrowRight");
  CHECK_THAT(page.text("loss-text"), Catch::StartsWith("step 10: 0.1, "));
  tab_to("rank l0");
  browser.press("ArrowRight");
  CHECK_THAT(page.text("rank"),
             Catch::StartsWith("Rank 1: running, pid 102, host a, local rank 1, 300 ms a step later"));
  CHECK(browser.text("document.activeElement.getAttribute('aria-pressed')") == "true");
  CHECK(browser.text("getComputedStyle(document.activeElement).outlineStyle") != "none");
  tab_to("generations");
}

TEST_CASE("the page fits a phone") {
  if (!Browser::installed()) SKIP(not_installed);
  const auto job = full_job();
  OpenPage page(report_page({snapshot_json(job.model)}));
  page.browser.resize(360, 760, true);
  page.browser.evaluate("choose(1, false)");
  CHECK(page.browser.evaluate("document.documentElement.scrollWidth <= innerWidth") == boost::json::value(true));
}
