#include "worker/comm/operations/part_transfers.h"

#include <array>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

constexpr int size = 3;

// The memory of three ranks, with parts of two elements.
struct Memory {
  std::array<float, 6> input{}, output{};

  Call call(OpKind kind, std::size_t inputs, std::size_t outputs, int root = -1) {
    return {{.kind = kind, .dtype = DType::float32, .count = 2, .peer = root},
            {input.data(), inputs, DType::float32},
            {output.data(), outputs, DType::float32},
            {},
            nullptr};
  }
};

}  // namespace

TEST_CASE("all_to_all sends each rank its part, starting with the next rank, and keeps its own") {
  Memory memory;
  const auto transfers = part_transfers(memory.call(OpKind::all_to_all, 6, 6), {1, size});
  REQUIRE(transfers.sends.size() == 2);
  CHECK(transfers.sends[0].destination == 2);
  CHECK(transfers.sends[0].part.data == &memory.input[4]);
  CHECK(transfers.sends[1].destination == 0);
  CHECK(transfers.sends[1].part.data == &memory.input[0]);
  REQUIRE(transfers.receives.size() == 2);
  CHECK(transfers.receives[1].source == 0);
  CHECK(transfers.receives[1].part.data == &memory.output[0]);
  CHECK(transfers.own_input.data == &memory.input[2]);
  CHECK(transfers.own_output.data == &memory.output[2]);
  CHECK(transfers.copies_own());
}

TEST_CASE("a gather sends to the root only, and a scatter receives from it only") {
  Memory memory;
  const auto given = part_transfers(memory.call(OpKind::gather, 2, 0, 0), {2, size});
  REQUIRE(given.sends.size() == 1);
  CHECK(given.sends[0].destination == 0);
  CHECK(given.receives.empty());
  CHECK_FALSE(given.copies_own());

  const auto gathered = part_transfers(memory.call(OpKind::gather, 2, 6, 0), {0, size});
  CHECK(gathered.sends.empty());
  CHECK(gathered.receives.size() == 2);
  CHECK(gathered.own_input.data == &memory.input[0]);
  CHECK(gathered.own_output.data == &memory.output[0]);

  const auto dealt = part_transfers(memory.call(OpKind::scatter, 6, 2, 1), {1, size});
  REQUIRE(dealt.sends.size() == 2);
  CHECK(dealt.sends[1].part.data == &memory.input[0]);
  CHECK(dealt.own_input.data == &memory.input[2]);
  CHECK(dealt.own_output.data == &memory.output[0]);

  const auto got = part_transfers(memory.call(OpKind::scatter, 0, 2, 1), {0, size});
  CHECK(got.sends.empty());
  REQUIRE(got.receives.size() == 1);
  CHECK(got.receives[0].source == 1);
}

TEST_CASE("empty parts are not sent, and a part in place is not copied") {
  Memory memory;
  auto call = memory.call(OpKind::scatter, 4, 0, 0);
  auto layout = std::make_shared<Layout>();
  layout->input_parts = std::make_unique<Parts>(std::vector<std::size_t>{1, 0, 3});
  call.layout = layout;
  const auto dealt = part_transfers(call, {0, size});
  REQUIRE(dealt.sends.size() == 1);
  CHECK(dealt.sends[0].destination == 2);
  CHECK(dealt.sends[0].part.count == 3);

  auto gather = memory.call(OpKind::gather, 2, 6, 0);
  gather.input.data = memory.output.data();
  CHECK_FALSE(part_transfers(gather, {0, size}).copies_own());
}
