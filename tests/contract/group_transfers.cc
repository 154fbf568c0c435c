#include <algorithm>

#include <fmt/core.h>

#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {

void send_and_recv_match_by_tag(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, test_timeout);
  const std::size_t large = 200'003;
  run_ranks(groups, [&](ProcessGroup& group) {
    // Every rank sends to its right neighbour before it receives from its left: two tags in another order, and two
    // messages of one tag.
    const int right = (group.rank() + 1) % size, left = (group.rank() + size - 1) % size;
    std::vector<std::int32_t> first(large, group.rank()), second(3, 10 + group.rank()), third(3, 20 + group.rank());
    std::vector<WorkPtr> works = {group.send(span_of(first), right, 1), group.send(span_of(second), right, 2),
                                  group.send(span_of(third), right, 2)};
    std::vector<std::int32_t> a(large), b(3), c(3);
    group.recv(span_of(b), left, 2)->wait();
    group.recv(span_of(c), left, 2)->wait();
    group.recv(span_of(a), left, 1)->wait();
    for (auto& work : works) work->wait();
    expect(a == std::vector<std::int32_t>(large, left), "tag 1");
    expect(b == std::vector<std::int32_t>(3, 10 + left), "tag 2, first message");
    expect(c == std::vector<std::int32_t>(3, 20 + left), "tag 2, second message");
  });
}

// The number is more than a back end may buffer.
void many_sends_match_receives_in_any_order(const MakeGroups& make, int size) {
  if (size != 2) return;
  auto groups = make(size, std::chrono::hours(1));
  constexpr int count = 200;
  run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<std::int32_t> sent(count);
    std::vector<WorkPtr> works;
    for (int tag = 0; tag < count && group.rank() == 0; ++tag) {
      sent[static_cast<std::size_t>(tag)] = 100 + tag;
      works.push_back(group.send({&sent[static_cast<std::size_t>(tag)], 1, DType::int32}, 1, tag));
    }
    for (int tag = count; tag-- > 0 && group.rank() == 1;) {
      std::int32_t value = 0;
      group.recv({&value, 1, DType::int32}, tag % 3 == 0 ? any_source : 0, tag)->wait();
      expect(value == 100 + tag, fmt::format("tag {}", tag));
    }
    for (const auto& work : works) work->wait();
  });
}

// More messages than a channel has offers, whose memory is freed after each round, and the last ones are received
// first.
void messages_of_allocated_memory_arrive(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, test_timeout);
  constexpr int count = 80;
  for (const std::size_t bytes : {1'000u, 65'537u, 300'000u}) {
    run_ranks(groups, [&](ProcessGroup& group) {
      const int last = size - 1;
      if (group.rank() == last) {
        const auto memory = group.allocate(count * bytes);
        std::vector<WorkPtr> works;
        for (int tag = 0; tag < count; ++tag) {
          auto* const own = memory.data() + static_cast<std::size_t>(tag) * bytes;
          std::fill(own, own + bytes, static_cast<std::byte>(tag + 1));
          works.push_back(group.send({own, bytes, DType::uint8}, 0, tag));
        }
        for (const auto& work : works) work->wait();
      }
      for (int tag = count; tag-- > 0 && group.rank() == 0;) {
        std::vector<std::byte> received(bytes);
        group.recv({received.data(), bytes, DType::uint8}, last, tag)->wait();
        const std::vector<std::byte> expected(bytes, static_cast<std::byte>(tag + 1));
        expect(received == expected, fmt::format("{} bytes with tag {}", bytes, tag));
      }
    });
  }
}

void a_recv_from_any_source_reports_the_sender(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, test_timeout);
  for (const std::size_t count : {0u, 5u, 70'001u}) {
    run_ranks(groups, [&](ProcessGroup& group) {
      if (group.rank() > 0) {
        const auto sent = message(group.rank(), 0, count);
        group.send(span_of(sent), 0, 3)->wait();
        return;
      }
      std::vector<bool> received_from(static_cast<std::size_t>(size));
      for (int i = 1; i < size; ++i) {
        std::vector<std::int64_t> values(count);
        const auto work = group.recv(span_of(values), any_source, 3);
        work->wait();
        expect(work->source() > 0 && work->source() < size, fmt::format("source {}", work->source()));
        expect(values == message(work->source(), 0, count), "its message");
        received_from[static_cast<std::size_t>(work->source())] = true;
      }
      expect(std::count(received_from.begin(), received_from.end(), true) == size - 1, "one from each rank");
    });
  }
}

void recvs_from_any_source_match_their_tag(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    if (group.rank() > 1) return;
    const auto first = message(1, 1, 9), second = message(1, 2, 9), third = message(1, 3, 9);
    if (group.rank() == 1) {
      std::vector<std::int64_t> go(1);
      group.recv(span_of(go), 0, 0)->wait();
      for (const auto& [values, tag] : {std::pair(&first, 1), {&second, 2}, {&third, 1}}) {
        group.send(span_of(*values), 0, tag)->wait();
      }
      return;
    }
    std::vector<std::int64_t> a(9), b(9), c(9), go(1);
    const std::vector<WorkPtr> works = {group.recv(span_of(b), any_source, 2), group.recv(span_of(a), any_source, 1)};
    group.send(span_of(go), 1, 0)->wait();
    for (const auto& work : works) work->wait();
    group.recv(span_of(c), 1, 1)->wait();
    expect(a == first && b == second && c == third, "each receives its own message, in order");
  });
}

// The ranks leave one by one; the last one sends before it leaves.
void a_recv_from_any_source_survives_departures(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, std::chrono::hours(1));
  const auto sent = message(1, 1, 9);
  std::vector<std::int64_t> a(9), b(9);
  const auto answered = groups[0]->recv(span_of(a), any_source, 3);
  const auto unanswered = groups[0]->recv(span_of(b), any_source, 4);
  run_ranks(groups, [](ProcessGroup& group) { group.barrier()->wait(); });
  for (int rank = size - 1; rank > 1; --rank) groups[static_cast<std::size_t>(rank)].reset();
  groups[1]->send(span_of(sent), 0, 3)->wait();
  groups[1].reset();
  answered->wait();
  expect(a == sent && answered->source() == 1, "the remaining rank has sent");
  if (size != 3) return groups[0]->abort("enough");  // the rest does not depend on the size
  const auto error = error_of([&] { unanswered->wait(); });
  expect(error.code() == Errc::peer_lost, error.what());
  expect(std::string(error.what()).find("left the group") != std::string::npos, error.what());
}

}  // namespace ddprun::contract
