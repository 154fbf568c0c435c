#include "launcher/dashboard/rank_details.h"

#include <boost/json.hpp>

#include "tests/support/catch.h"
#include "tests/unit/launcher/dashboard/model_time.h"

using namespace ddprun;
using namespace ddprun::dashboard;
using namespace ddprun::testing;

namespace {

boost::json::object details(const JobView& view, int rank, const std::vector<GroupProgress>& groups,
                            const std::optional<RankEvidence>& evidence) {
  return boost::json::parse(rank_details(view, rank, groups, evidence)).as_object();
}

}  // namespace

TEST_CASE("a rank's details: its output as text, its process, and its place in its groups") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  const GroupProgress group{"group/0", {{.record = RankRecord{.size = 2, .pid = 2, .host = "a", .label = "data 1"}}}};
  const auto found = details(job.model.view(), 1, {group},
                             RankEvidence{.out = "<b>step 1\xff", .err = std::nullopt, .process = {{"state", "R"}}});
  CHECK(found.at("host").as_string() == "a");
  CHECK(found.at("out").as_string().starts_with("<b>step 1"));
  CHECK(found.at("err").is_null());
  CHECK(found.at("process").at(0).at(1).as_string() == "R");
  CHECK(found.at("groups").at(0).at("place").as_string() == "data 1");
  CHECK(found.at("note").as_string().empty());
  CHECK(details(job.model.view(), 1, {}, RankEvidence{}).at("note").as_string() == "the process has ended");
}

TEST_CASE("of a rank elsewhere the details say where they are, of an unknown one that there is none") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  CHECK_THAT(std::string(details(job.model.view(), 0, {}, std::nullopt).at("note").as_string()),
             Catch::Contains("on host a: the page of an agent there has them"));
  CHECK(details(job.model.view(), 2, {}, std::nullopt).at("note").as_string() == "there is no such rank");
  CHECK(details(job.model.view(), -1, {}, std::nullopt).at("note").as_string() == "there is no such rank");
}
