#include "launcher/dashboard/view_json.h"

#include <boost/json.hpp>

#include "launcher/dashboard/page.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/dashboard/model_time.h"

using namespace ddprun;
using namespace ddprun::dashboard;
using namespace ddprun::testing;

namespace {

boost::json::object changes(const JobModel& model, Version since) {
  return boost::json::parse(changes_json(model, since)).as_object();
}

std::size_t size(const boost::json::object& message, const char* part) {
  return message.contains(part) ? message.at(part).as_array().size() : 0;
}

}  // namespace

TEST_CASE("a client gets the whole view first, then only what is new") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.after(1'000);
  job.train(0, 1, 1);
  const auto first = changes(job.model, 0);
  CHECK(first.at("full").as_bool());
  CHECK(size(first, "points") == 1);
  CHECK(size(first, "ranks") == 2);
  CHECK(size(first, "nodes") == 1);
  CHECK(first.at("job").at("training").at("step").as_int64() == 1);
  CHECK(first.at("job").at("training").at("gradient_norm").is_null());
  const auto seen = first.at("v").to_number<Version>();

  job.after(1'000);
  job.train(0, 2, 2);
  const auto second = changes(job.model, seen);
  CHECK_FALSE(second.at("full").as_bool());
  REQUIRE(size(second, "points") == 1);
  CHECK(second.at("points").at(0).at(1).as_int64() == 2);
  CHECK(size(second, "ranks") == 0);
  CHECK(size(second, "events") == 0);
  CHECK_FALSE(second.contains("nodes"));
  CHECK_FALSE(second.contains("generations"));

  job.model.workers(job.now, {{.local_rank = 1, .pid = 2, .state = WorkerReport::State::stopped}});
  const auto third = changes(job.model, second.at("v").to_number<Version>());
  REQUIRE(size(third, "ranks") == 1);
  CHECK(third.at("ranks").at(0).at(0).as_int64() == 1);
  CHECK(third.at("ranks").at(0).at(4).as_int64() == 2);
  CHECK(size(third, "points") == 0);
}

TEST_CASE("collectives and waits are sent when they have changed, and a replaced rank says so") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  const auto seen = job.model.view().version;
  const GroupProgress group{
      "group/0",
      {{.record = RankRecord{.size = 1, .timings = {{.kind = "barrier", .count = 1, .seconds = 1, .median = 1}}}}}};
  job.after(100);
  job.model.groups(job.now, {group});
  const auto first = changes(job.model, seen);
  REQUIRE(size(first, "collectives") == 1);
  CHECK(first.at("collectives").at(0).at(1).as_string() == "barrier");
  CHECK(first.at("collectives").at(0).at(6).is_null());
  CHECK(size(first, "waits") == 0);
  CHECK(size(first, "ranks") == 0);
  job.after(100);
  job.model.groups(job.now, {group});
  CHECK(job.model.view().version == first.at("v").to_number<Version>());
  job.model.workers_replaced(job.now, {1}, 1);
  const auto second = changes(job.model, first.at("v").to_number<Version>());
  CHECK_FALSE(second.contains("collectives"));
  REQUIRE(size(second, "ranks") == 1);
  CHECK(second.at("ranks").at(0).at(9).to_number<int>() == 1);
  CHECK(second.at("generations").at(1).at("replacement").to_number<int>() == 1);
}

TEST_CASE("a client that is too far behind, or ahead, gets the whole view") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  const auto before = job.model.view().version;
  CHECK(changes(job.model, before + 1).at("full").as_bool());
  job.start(1, 1);  // the ranks are different now
  CHECK(changes(job.model, before).at("full").as_bool());
  const auto seen = job.model.view().version;
  for (int i = 0; i < 400; ++i) job.model.waiting(job.now, "node b");
  CHECK_FALSE(changes(job.model, seen).at("full").as_bool());
  job.model.waiting(job.now, "node b");  // the event that follows the client's last one is gone
  CHECK(changes(job.model, seen).at("full").as_bool());
}

TEST_CASE("text from outside stays text in a message and in a page") {
  WatchedModel job;
  job.model.waiting(job.now, "</script><b>\"\\\n\xff");
  const auto text = snapshot_json(job.model);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(boost::json::parse(text).at("events").at(0).at("text").as_string() == "</script><b>\"\\\n\\xff");
  const auto page = report_page({text});
  CHECK(page.find("</script><b>") == std::string::npos);
  CHECK_THAT(page, Catch::Contains("\\u003c/script>\\u003cb>"));
}

TEST_CASE("a page has the nonce at its style and its script, and its policy allows nothing from elsewhere") {
  const auto page = page_with("abc", "");
  CHECK_THAT(page, Catch::Contains("<style nonce=\"abc\">") && Catch::Contains("<script nonce=\"abc\">"));
  CHECK(page.find("@NONCE@") == std::string::npos);
  CHECK(page.find("@ISLAND@") == std::string::npos);
  CHECK(page.find("innerHTML") == std::string::npos);
  CHECK_THAT(content_policy("abc"), Catch::StartsWith("default-src 'none'; connect-src 'self';"));
}

TEST_CASE("a thousand ranks that change once a second cost a client less than 50 KB a second") {
  WatchedModel job;
  job.propose(0);
  job.start(0, 1'000);
  auto seen = job.model.view().version;
  std::size_t bytes = 0;
  for (int quarter = 0; quarter < 4; ++quarter) {
    job.after(250);
    for (int rank = 0; rank < 1'000; ++rank) {
      auto record = job.record(0, quarter + 1, quarter + 1);
      record.pid = rank + 1;
      record.lateness = 1e-3 * rank;
      job.model.training(job.now, rank, record);
    }
    bytes += changes_json(job.model, seen).size();
    seen = job.model.view().version;
  }
  CHECK(bytes < 50'000);
}
