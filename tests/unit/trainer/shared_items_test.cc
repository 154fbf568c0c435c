#include "worker/trainer/session/shared_items.h"

#include <mutex>
#include <set>

#include "common/error.h"
#include "common/host_port.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

// Returns the error of each rank's comparison, where rank r has items[r].
std::vector<std::string> errors_of(const std::vector<SharedItems>& items) {
  std::vector<std::string> errors(items.size());
  testing::run_ranks(static_cast<int>(items.size()), [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    try {
      require_same_items(items[rank], group);
    } catch (const Error& e) {
      errors[rank] = (e.code() == Errc::usage ? "usage: " : "") + std::string(e.what());
    }
  });
  return errors;
}

}  // namespace

TEST_CASE("the first item in which two ranks differ is found, whatever else differs") {
  const SharedItems one{{"a", "1"}, {"b", "2"}, {"c", "3"}};
  CHECK(first_difference(one, one) == std::nullopt);
  CHECK(first_difference({}, {}) == std::nullopt);
  CHECK(first_difference(one, {{"a", "1"}, {"b", "5"}, {"c", "6"}}) == Difference{"b", "2", "5"});
  CHECK(first_difference(one, {{"a", "1"}, {"c", "3"}}) == Difference{"b", "2", std::nullopt});
  CHECK(first_difference({{"a", "1"}, {"c", "3"}}, one) == Difference{"b", std::nullopt, "2"});
  CHECK(first_difference(one, {{"a", "1"}, {"b", "2"}}) == Difference{"c", "3", std::nullopt});
  CHECK(first_difference(one, {{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", ""}}) == Difference{"d", std::nullopt, ""});
  CHECK(first_difference(one, {{"b", "2"}, {"a", "1"}, {"c", "3"}})->name == "the order of what is compared");
}

TEST_CASE("items travel with any characters, and what is no text of items is refused") {
  const HostItems items{"host:1", {{"a", ""}, {"", "1:2"}, {std::string("x\0y", 3), "\n3:"}}};
  CHECK(decode_host_items(encode(items)) == items);
  for (const std::string text : {"", "1", ":", "5:abc", "1:a2:b", "-1:a", "99999999999999999999:a"}) {
    INFO(text);
    try {
      decode_host_items(text);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == Errc::protocol);
    }
  }
}

TEST_CASE("a difference is the same mistake at every rank, with both values, ranks and hosts") {
  const SharedItems usual{{"optim.lr", "0.1"}, {"train.seed", "1"}}, other{{"optim.lr", "0.1"}, {"train.seed", "2"}};
  for (const auto& error : errors_of({usual, usual, usual})) CHECK(error.empty());
  const auto host = local_host_name();
  for (const auto& error : errors_of({usual, usual, other}))
    CHECK(error == "usage: the ranks differ in train.seed: rank 0 on host " + host + " has 1, rank 2 on host " + host +
                       " has 2");
  for (const auto& error : errors_of({other, usual, usual}))
    CHECK(error == "usage: the ranks differ in train.seed: rank 0 on host " + host + " has 2, rank 1 on host " + host +
                       " has 1; 2 of 3 ranks differ from rank 0");
  for (const auto& error : errors_of({usual, {{"optim.lr", ""}, {"train.seed", "1"}}}))
    CHECK(error == "usage: the ranks differ in optim.lr: rank 0 on host " + host + " has 0.1, rank 1 on host " + host +
                       " has none");
}
