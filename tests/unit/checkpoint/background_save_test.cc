#include "worker/checkpoint/background_save.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <sys/resource.h>
#include <thread>
#include <utility>

#include "common/error.h"
#include "worker/checkpoint/streaming_copy.h"
#include "tests/support/catch.h"
#include "tests/support/pages.h"

using namespace ddprun;
using namespace ddprun::checkpoint;

namespace {

using Values = std::vector<float>;

std::span<const std::byte> bytes_of(const Values& values) {
  return std::as_bytes(std::span(values));
}

TensorView view_of(const char* name, const Values& values) {
  return {name, DType::float32, {std::ssize(values)}, bytes_of(values)};
}

Values values_of(const TensorView& tensor) {
  Values values(tensor.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace

TEST_CASE("a snapshot copies what changes now, then what changes later, and refers to what stays") {
  Values buffer{1, 2, 3}, parameter{4, 5}, gathered{6}, empty, unused{7};
  Content content{.model = {view_of("p", parameter), view_of("b", buffer), view_of("e", empty)},
                  .optimizer = {view_of("g", gathered)},
                  .state = {.step = 12},
                  .ema = {view_of("b", buffer)}};
  CopyMemory memory;
  Snapshot snapshot(std::move(content), {bytes_of(buffer)}, {bytes_of(parameter), bytes_of(unused), bytes_of(empty)},
                    memory);
  buffer = {10, 20, 30};
  parameter = {40, 50};
  snapshot.copy_rest();
  snapshot.wait();
  parameter = {400, 500};
  gathered = {60};
  const auto& copy = snapshot.content();
  CHECK(values_of(copy.model[0]) == Values{40, 50});
  CHECK(values_of(copy.model[1]) == Values{1, 2, 3});
  CHECK(values_of(copy.model[2]).empty());
  CHECK(values_of(copy.optimizer[0]) == Values{60});
  CHECK(values_of(copy.ema[0]) == Values{1, 2, 3});
  CHECK(copy.ema[0].bytes.data() == copy.model[1].bytes.data());  // one copy serves both files
  CHECK(copy.state.step == 12);
}

TEST_CASE("a snapshot copies a tensor that begins where one without elements does") {
  Values values{1, 2};
  const auto none = bytes_of(values).first(0);
  CopyMemory memory;
  Snapshot snapshot({.model = {{"none", DType::float32, {0}, none}, view_of("p", values)}}, {},
                    {none, bytes_of(values)}, memory);
  snapshot.copy_rest();
  snapshot.wait();
  values = {10, 20};
  CHECK(snapshot.content().model[0].bytes.empty());
  CHECK(values_of(snapshot.content().model[1]) == Values{1, 2});
}

TEST_CASE("threads that complete a snapshot copy each piece once, and wait for each other") {
  Values large(3'000'000);  // several pieces
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  const Values expected = large;
  CopyMemory memory;
  Snapshot snapshot({.model = {view_of("p", large)}, .optimizer = {}, .state = {}}, {}, {bytes_of(large)}, memory);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      snapshot.copy_rest();
      snapshot.wait();
    });
  snapshot.copy_rest();
  snapshot.wait();
  std::ranges::fill(large, 0.0F);
  for (auto& thread : threads) thread.join();
  CHECK(values_of(snapshot.content().model[0]) == expected);
}

TEST_CASE("one snapshot after the other has the same memory, unless it needs more") {
  Values small{1, 2}, large(1000, 3.0F);
  CopyMemory memory;
  const auto place_of_copy = [&](const Values& values) {
    Snapshot snapshot({.model = {view_of("p", values)}, .optimizer = {}, .state = {}}, {}, {bytes_of(values)}, memory);
    snapshot.copy_rest();
    snapshot.wait();
    CHECK(values_of(snapshot.content().model[0]) == values);
    return snapshot.content().model[0].bytes.data();
  };
  place_of_copy(small);
  const auto* const place = place_of_copy(large);
  CHECK(place_of_copy(small) == place);
  CHECK(place_of_copy(large) == place);
}

TEST_CASE("memory that is prepared has its pages, and serves the snapshots that it is for") {
  Values small{1, 2}, large(3'000'000, 3.0F);
  const std::size_t bytes = copy_alignment + large.size() * sizeof(float);
  CopyMemory memory;
  memory.prepare(bytes);
  memory.await_pages();
  std::byte* const begin = memory.reserve(bytes);
  CHECK(testing::has_pages(begin, bytes));
  memory.prepare(bytes);  // beside the copy
  Snapshot snapshot({.model = {view_of("a", small), view_of("b", large)}, .optimizer = {}, .state = {}}, {},
                    {bytes_of(small), bytes_of(large)}, memory);
  snapshot.copy_rest();
  snapshot.wait();
  CHECK(snapshot.content().model[0].bytes.data() == begin);
  CHECK(values_of(snapshot.content().model[0]) == small);
  CHECK(values_of(snapshot.content().model[1]) == large);
}

TEST_CASE("a checkpoint is written with a low priority, and the thread that asks for it keeps its own") {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  int of_writer = 0;
  CopyMemory memory;
  auto snapshot = std::make_shared<Snapshot>(Content{}, Snapshot::Memory{}, Snapshot::Memory{}, memory);
  BackgroundSave save(std::move(snapshot), nullptr,
                      [&](const Content&) { of_writer = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())); });
  save.result();
  CHECK(of_writer == std::max(before, 10));
  CHECK(::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())) == before);
}

TEST_CASE("a copy past the caches has all bytes, wherever they begin and end") {
  std::vector<std::byte> from(1000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
  CopyMemory memory;
  std::byte* const to = memory.reserve(from.size());
  for (const std::size_t begin : {0, 1, 16, 63})
    for (const std::size_t size : {0, 1, 63, 64, 65, 128, 900}) {
      const auto bytes = std::span(from).subspan(begin, size);
      to[size] = std::byte{1};
      copy_streaming(to, bytes);
      CHECK(std::ranges::equal(bytes, std::span(to, size)));
      CHECK(to[size] == std::byte{1});
    }
}

TEST_CASE("a save in the background writes the values of its beginning, and says when it has ended") {
  Values parameter{1, 2};
  auto gathered = std::make_shared<Values>(Values{3});
  Content content{.model = {view_of("p", parameter)}, .optimizer = {view_of("g", *gathered)}, .state = {}};
  CopyMemory memory;
  auto snapshot =
      std::make_shared<Snapshot>(std::move(content), Snapshot::Memory{}, Snapshot::Memory{bytes_of(parameter)}, memory);
  std::promise<void> go;
  Values written;
  BackgroundSave save(std::move(snapshot), std::exchange(gathered, nullptr), [&](const Content& complete) {
    go.get_future().wait();
    for (const auto* file : {&complete.model, &complete.optimizer})
      for (const float value : values_of(file->front())) written.push_back(value);
  });
  save.complete_copy();
  parameter = {10, 20};
  CHECK_FALSE(save.has_ended());
  const auto before = BackgroundSave::Clock::now();
  go.set_value();
  CHECK(save.result() >= before);
  CHECK(save.has_ended());
  CHECK(written == Values{1, 2, 3});
}

TEST_CASE("an error of a save in the background comes out of its result, and its end is awaited in any case") {
  CopyMemory memory;
  const auto snapshot = [&] {
    return std::make_shared<Snapshot>(Content{}, Snapshot::Memory{}, Snapshot::Memory{}, memory);
  };
  BackgroundSave failing(snapshot(), nullptr, [](const Content&) { throw Error(Errc::io, "the disk is full"); });
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(failing.result(), "the disk is full");
  CHECK(failing.has_ended());
  std::atomic<bool> ended = false;
  std::promise<void> go;
  {
    const BackgroundSave save(snapshot(), nullptr, [&](const Content&) {
      go.get_future().wait();
      ended = true;
    });
    go.set_value();
  }
  CHECK(ended);
}
