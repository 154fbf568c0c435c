#include "launcher/dashboard/journal.h"

#include <fstream>

#include <boost/json.hpp>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/launcher/dashboard/model_time.h"

using namespace ddprun;
using namespace ddprun::dashboard;
using namespace ddprun::testing;

TEST_CASE("a journal has the view and its changes, points each second, and events at once") {
  const TempDir folder;
  const auto path = folder / journal_name;
  WatchedModel job;
  Journal journal(path);
  const auto lines = [&] { return read_journal(path).size(); };
  job.propose(0);
  job.start(0);
  journal.update(job.model);
  CHECK(lines() == 1);
  job.after(500);
  job.train(0, 1, 1);
  journal.update(job.model);
  CHECK(lines() == 1);
  job.after(500);
  job.train(0, 2, 2);
  journal.update(job.model);
  CHECK(lines() == 2);
  job.model.contact_broken(job.now, "broken");
  journal.update(job.model);
  CHECK(lines() == 3);
  const auto last = boost::json::parse(read_journal(path).back());
  CHECK_FALSE(last.at("full").as_bool());
  CHECK(last.at("events").at(0).at("text").as_string() == "broken");
  CHECK(boost::json::parse(read_journal(path)[1]).at("points").as_array().size() == 2);
}

TEST_CASE("a journal of a job of days has a line a minute") {
  const TempDir folder;
  WatchedModel job;
  Journal journal(folder / journal_name);
  job.propose(0);
  job.start(0);
  job.after(100'000'000);
  job.train(0, 1, 1);
  journal.update(job.model);
  const auto before = read_journal(folder / journal_name).size();
  for (int second = 0; second < 120; ++second) {
    job.after(1'000);
    job.train(0, second + 2, second + 2);
    journal.update(job.model);
  }
  CHECK(read_journal(folder / journal_name).size() == before + 2);
}

TEST_CASE("the line that an agent wrote when it was killed is left out") {
  const TempDir folder;
  WatchedModel job;
  Journal(folder / journal_name).flush(job.model);
  std::ofstream(folder / journal_name, std::ios::app) << "{\"v\": 7, \"job\"";
  CHECK(read_journal(folder / journal_name).size() == 1);
  std::ofstream(folder / journal_name, std::ios::app) << "\n";
  CHECK(read_journal(folder / journal_name).size() == 1);
}

TEST_CASE("a journal is found in a folder of logs or in one of its folders, and its lack is named") {
  const TempDir folder;
  CHECK_THROWS_WITH(find_journal(folder.path()), Catch::Contains("has no job.jsonl"));
  CHECK_THROWS_WITH(find_journal(folder / "none"), Catch::Contains("cannot read"));
  std::filesystem::create_directories(folder / "shop_1");
  std::ofstream(folder / "shop_1" / journal_name) << "no journal\n";
  CHECK(find_journal(folder.path()) == folder / "shop_1" / journal_name);
  CHECK(find_journal(folder / "shop_1") == folder / "shop_1" / journal_name);
  CHECK_THROWS_WITH(read_journal(find_journal(folder.path())), Catch::Contains("is not the record of a job"));
}
