#include "worker/recovery/state_offer.h"

#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/thread_group.h"
#include "tests/unit/recovery/served_store.h"

using namespace ddprun;

namespace {

// The processes of a job are threads here.
struct Job {
  RecoveryKeys keys{3};
  testing::ServedStore served;
  std::shared_ptr<Store> store = served.connect();
  PlanWatch::Connect connect = [this](Deadline, const std::stop_token& stop) { return served.connect(stop); };
  StateOffer::Form form = [this](const std::string& prefix, int rank, int size, const std::stop_token&) {
    const std::lock_guard lock(mutex);
    auto& groups = formed[prefix];
    if (groups.empty()) groups = testing::make_thread_groups(size);
    return std::move(groups[static_cast<std::size_t>(rank)]);
  };

  std::unique_ptr<ProcessGroup> accept(std::uint64_t joined_in, const std::vector<std::string>& node,
                                       const std::string& self, const std::stop_token& stop = {}) {
    return accept_offer(*store, form, keys, joined_in, node, self, stop);
  }

  std::mutex mutex;
  std::map<std::string, std::vector<std::unique_ptr<ProcessGroup>>> formed;
};

std::unique_ptr<ProcessGroup> take(StateOffer& offer) {
  while (true) {
    if (auto group = offer.take()) return group;
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("the processes of each node that asks form a group with the one that offers the state") {
  Job job;
  StateOffer offer(job.connect, job.form, job.keys, 4);
  job.store->wait({job.keys.state_offer(5), job.keys.state_offer(7)}, Deadline::in(std::chrono::seconds(10)));
  CHECK_FALSE(offer.take());
  const std::vector<std::string> node{"2.5", "3.5"};
  const auto first = job.accept(5, node, "2.5"), second = job.accept(5, node, "3.5");
  const auto sender = take(offer);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(sender->rank() == 0);
  CHECK(first->rank() == 1);
  CHECK(second->rank() == 2);
  CHECK(sender->size() == 3);
  const auto other = job.accept(7, {"4.7"}, "4.7");  // of a node that comes later, and joins with the first one
  const auto other_sender = take(offer);
  REQUIRE(other);
  CHECK(other->rank() == 1);
  CHECK(other_sender->size() == 2);
  CHECK_FALSE(offer.take());
}

TEST_CASE("a node whose group does not form keeps no other from the state") {
  Job job;
  const auto form = job.form;
  StateOffer offer(
      job.connect,
      [&](const std::string& prefix, int rank, int size, const std::stop_token& stop) {
        if (size == 3) throw Error(Errc::timeout, "not all ranks have joined");
        return form(prefix, rank, size, stop);
      },
      job.keys, 4);
  job.store->wait({job.keys.state_offer(5)}, Deadline::in(std::chrono::seconds(10)));
  const auto lost = job.accept(5, {"2.5", "3.5"}, "2.5");
  const auto other = job.accept(5, {"4.5"}, "4.5");
  REQUIRE(other);
  CHECK(take(offer)->size() == 2);
}

TEST_CASE("nobody asks for a state in a generation that is over") {
  Job job;
  const auto deadline = Deadline::in(std::chrono::seconds(10));
  job.store->set(job.keys.state_offer(7), "4", deadline);
  job.store->set(job.keys.newest(), "5", deadline);
  CHECK_FALSE(job.accept(7, {"2.7"}, "2.7"));
  CHECK_FALSE(job.store->check({job.keys.state_request(4, 0)}, deadline));
}

TEST_CASE("nobody gets a state that is not offered, or when it joins at once") {
  Job job;
  CHECK_FALSE(job.accept(5, {"2.5"}, "2.5"));
  job.store->set(job.keys.state_offer(5), "4", Deadline::in(std::chrono::seconds(10)));
  std::stop_source joins;
  joins.request_stop();
  CHECK_FALSE(job.accept(5, {"2.5", "3.5"}, "3.5", joins.get_token()));
}
