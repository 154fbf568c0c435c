// An abort from another thread: every waiting call of the process ends with its reason, and the other ranks' failure
// names the rank that aborted, and the reason.
#include <thread>

#include "tests/failure/job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::failure;
using ddprun::testing::ForkedRanks;

namespace {

const std::string reason = "the program says so";

std::string wait_for(const WorkPtr& work) {
  try {
    work->wait();
  } catch (const Error& error) {
    return code_and_text(error);
  }
  return "no error";
}

// A collective in progress, a queued one, a receive and a send, none of which can complete; a thread waits for each.
std::string abort_everything(ProcessGroup& group) {
  std::vector<float> values(100'000, 1.0f);
  std::vector<float> more(values), received(10), sent(1'000'000);
  const std::vector<WorkPtr> works = {group.allreduce(span_of(values), ReduceOp::sum),
                                      group.broadcast(span_of(more), 0), group.recv(span_of(received), 1, 7),
                                      group.send(span_of(sent), 1, 8)};
  std::vector<std::string> ends(works.size() + 1);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < works.size(); ++i) threads.emplace_back([&, i] { ends[i] = wait_for(works[i]); });
  threads.emplace_back([&] {
    try {
      group.barrier({.blocking = true});
    } catch (const Error& error) {
      ends.back() = code_and_text(error);
    }
  });
  group.abort(reason);
  group.abort("another reason, which is too late");
  for (auto& thread : threads) thread.join();
  for (const auto& end : ends)
    if (end != "aborted: " + reason) return end;
  return wait_for(group.barrier());
}

}  // namespace

TEST_CASE("an abort ends every waiting call, and every later one, with its reason") {
  for (const auto& backend : backends) {
    for (const int size : {2, 4, 8}) {
      INFO(backend << ", " << size << " ranks");
      ForkedRanks ranks(size, [&](int rank, std::uint16_t port) {
        const auto group = comm::make_group(backend, options_for(backend, rank, size, port));
        group->barrier()->wait();
        connect(port)->barrier("connected", size, Deadline::in(test_timeout));
        if (rank == 0) return abort_everything(*group);
        std::vector<float> received(10);
        return wait_for(group->recv(span_of(received), 0, 9));
      });
      CHECK(ranks.result(0, Deadline::in(test_timeout)) == "aborted: " + reason);
      for (int rank = 1; rank < size; ++rank) {
        const auto text = ranks.result(rank, Deadline::in(test_timeout));
        INFO(text);
        CHECK(contains(text, "peer_lost: " + named(ranks, 0)));
        CHECK(contains(text, "aborted the group: " + reason));
      }
    }
  }
}

TEST_CASE("a group that forms can be told to stop") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      std::stop_source stop;
      auto options = options_for(backend, rank, 3, port);  // the third never joins
      options.stop = stop.get_token();
      std::thread stopper([&] {
        store->wait({"group/0/record/0", "group/0/record/1"}, Deadline::in(test_timeout));
        if (rank == 0) stop.request_stop();
      });
      std::string said = "it formed";
      try {
        comm::make_group(backend, options);
      } catch (const Error& error) {
        said = code_and_text(error);
      }
      stopper.join();
      return said;
    });
    CHECK(contains(ranks.result(0, Deadline::in(test_timeout)), "aborted: the group was told to stop"));
    const auto other = ranks.result(1, Deadline::in(test_timeout));
    INFO(other);
    CHECK(contains(other, "peer_lost: " + named(ranks, 0)));
  }
}
