#include "worker/comm/registry/shared_devices.h"

#include "tests/support/catch.h"

using namespace ddprun::comm;

namespace {

// The host of each rank, and the last digit of its device's bus id.
RankLocations places(const std::vector<std::pair<std::string, int>>& ranks) {
  RankLocations locations;
  for (const auto& [host, device] : ranks)
    locations.push_back({.host = "evidence of " + host,
                         .network = "",
                         .address = "",
                         .device = "0000:0" + std::to_string(device) + ":00.0",
                         .host_name = host});
  return locations;
}

}  // namespace

TEST_CASE("devices that ranks share are named with those ranks and the host") {
  CHECK(describe_shared_devices(places({{"a", 1}})) == "");
  CHECK(describe_shared_devices(places({{"a", 1}, {"a", 2}, {"b", 1}, {"b", 2}})) == "");
  CHECK(describe_shared_devices(places({{"a", 1}, {"a", 2}, {"a", 1}})) ==
        "ranks 0 and 2 share the device 0000:01:00.0 of host a");
  CHECK(describe_shared_devices(places({{"a", 1}, {"a", 1}, {"a", 1}, {"b", 2}, {"b", 1}, {"b", 1}})) ==
        "ranks 0, 1 and 2 share the device 0000:01:00.0 of host a, ranks 4 and 5 the device 0000:01:00.0 of host b");
}

TEST_CASE("the text about shared devices stays short") {
  CHECK(describe_shared_devices(places({12, {"a", 1}})) ==
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more share the device 0000:01:00.0 of host a");
  std::vector<std::pair<std::string, int>> many;
  for (const int device : {1, 2, 3, 4, 5, 6}) many.insert(many.end(), 2, {"a", device});
  const auto text = describe_shared_devices(places(many));
  CHECK(text.ends_with("ranks 6 and 7 the device 0000:04:00.0 of host a, and others share 2 more devices"));
}
