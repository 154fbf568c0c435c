#include "ddprun/worker/comm/shm/shm_group.h"

#include "ddprun/worker/comm/forming/auto_group.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

contract::Groups make_shm(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(comm::make_shm_group, size, timeout);
}

}  // namespace

TEST_CASE("auto takes shared memory where ranks can share it") {
  const auto groups = contract::make_groups(comm::make_auto_group, 2, contract::patience);
  CHECK(groups[0]->backend() == "shm");
  CHECK(groups[1]->backend() == "shm");
}

TEST_CASE("shared memory compares what is sent with what is expected") {
  struct Case {
    WorkPtr (*call)(ProcessGroup&, std::vector<float>&);
    const char* sent;
    const char* expected;
  };
  const Case cases[] = {
      {[](ProcessGroup& group, std::vector<float>& of) {
         if (group.rank() == 0) return group.send({of.data(), 2, DType::float32}, 1, 7);
         return group.recv({of.data(), 3, DType::float32}, 0, 7);
       },
       "send of 2 float32", "recv of 3 float32"},
      {[](ProcessGroup& group, std::vector<float>& of) {
         if (group.rank() == 0) return group.send({of.data(), 2, DType::float32}, 1, 7);
         return group.recv({of.data(), 2, DType::int32}, any_source, 7);
       },
       "send of 2 float32", "recv of 2 int32 from any rank"},
      {[](ProcessGroup& group, std::vector<float>& of) {
         const Counts received = group.rank() == 0 ? Counts{2, 1} : Counts{1, 2};
         return group.all_to_allv({of.data(), 4, DType::float32}, {2, 2}, {of.data() + 4, 3, DType::float32}, received);
       },
       "2 elements", "expects 1"},
  };
  for (const auto& each : cases) {
    auto groups = make_shm(2, std::chrono::hours(1));
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<float> memory(8);
      const auto error = contract::error_of([&] { each.call(group, memory)->wait(); });
      contract::expect(error.code() == Errc::mismatch, error.what());
      for (const auto* part : {"rank 0", "rank 1", each.sent, each.expected}) {
        contract::expect(std::string(error.what()).find(part) != std::string::npos, error.what());
      }
    });
  }
}

DDPRUN_GROUP_CONTRACT("shm", make_shm, {1, 2, 3, 4, 5, 8})
