#include "worker/profiler/trace.h"

#include <boost/json.hpp>

#include "tests/support/catch.h"

using namespace ddprun::profiler;
using namespace std::chrono_literals;

TEST_CASE("a trace is a JSON object of complete and metadata events, a process for each rank") {
  const std::vector<Event> events{
      {.kind = Kind::forward, .name = "linear", .module = "a\"b\\", .start = 1500ns, .duration = 250ns, .flops = 12},
      {.kind = Kind::communication,
       .name = "allreduce",
       .start = 1600ns,
       .duration = 5us,
       .track = first_bucket_track + 1},
      {.kind = Kind::phase, .name = "forward", .start = 1500ns, .duration = 1us}};
  const auto text = trace_file({trace_events(0, "a", events), trace_events(1, "b", events)});
  const auto parsed = boost::json::parse(text);
  const auto& all = parsed.at("traceEvents").as_array();
  REQUIRE(all.size() == 12);
  CHECK(all[0].at("ph").as_string() == "M");
  CHECK(all[0].at("name").as_string() == "process_name");
  CHECK(all[0].at("args").at("name").as_string() == "rank 0 on a");
  CHECK(all[2].at("args").at("name").as_string() == "gradients, bucket 1");
  CHECK(all[3].at("name").as_string() == "forward");  // the span that contains others comes first
  const auto& linear = all[4];
  CHECK(linear.at("ph").as_string() == "X");
  CHECK(linear.at("cat").as_string() == "forward");
  CHECK(linear.at("ts").to_number<double>() == Approx(1.5));
  CHECK(linear.at("dur").to_number<double>() == Approx(0.25));
  CHECK(linear.at("args").at("module").as_string() == "a\"b\\");
  CHECK(linear.at("args").at("flops").to_number<double>() == 12);
  CHECK(all[5].at("tid").as_int64() == first_bucket_track + 1);
  CHECK(all[11].at("pid").as_int64() == 1);
}

TEST_CASE("a rank with a device has a row for the host and one for each queue, whatever ran there") {
  const auto rows = [](const std::vector<Event>& events) {
    std::vector<std::string> names;
    const auto parsed = boost::json::parse(trace_file({trace_events(0, "a", events)}));
    for (const auto& each : parsed.at("traceEvents").as_array())
      if (each.at("name").as_string() == "thread_name") names.emplace_back(each.at("args").at("name").as_string());
    return names;
  };
  CHECK(rows({Event{.name = "forward", .duration = 1us}}) == std::vector<std::string>{"training"});
  CHECK(rows({Event{.name = "forward", .duration = 1us, .track = compute_track}}) ==
        std::vector<std::string>{"host", "device: compute queue", "device: communication queue", "device: copies"});
}
