#include "launcher/output/console.h"

#include <atomic>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "common/unique_fd.h"
#include "launcher/output/log_through_console.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
  std::string read_all(std::size_t bytes) const {
    std::string text;
    char block[65536];
    while (text.size() < bytes) {
      const auto got = ::read(read_end.get(), block, sizeof(block));
      if (got <= 0) break;
      text.append(block, static_cast<std::size_t>(got));
    }
    return text;
  }
};

}  // namespace

TEST_CASE("texts are written to their stream in order") {
  const Pipe out;
  const Pipe err;
  Console console(out.write_end.get(), err.write_end.get(), nullptr);
  console.write(Console::Stream::out, "a");
  console.write(Console::Stream::err, "x");
  console.write(Console::Stream::out, "b");
  CHECK(console.drain(5s));
  CHECK(out.read_all(2) == "ab");
  CHECK(err.read_all(1) == "x");
}

TEST_CASE("a terminal that accepts no output blocks neither the writer nor the destructor") {
  const Pipe out;
  Console console(out.write_end.get(), out.write_end.get(), nullptr);
  for (int i = 0; i < 4; ++i) console.write(Console::Stream::out, std::string(512 * 1024, 'x'));
  CHECK(console.full());
  CHECK_FALSE(console.drain(20ms));
}

TEST_CASE("on_writable is called once when a full queue has fallen to half") {
  const Pipe out;
  std::atomic<int> calls{0};
  Console console(out.write_end.get(), out.write_end.get(), [&] { ++calls; });
  const std::string text(256 * 1024, 'x');
  for (int i = 0; i < 5; ++i) console.write(Console::Stream::out, text);
  CHECK(console.full());
  CHECK(out.read_all(5 * text.size()).size() == 5 * text.size());
  CHECK(console.drain(5s));
  CHECK_FALSE(console.full());
  CHECK(calls == 1);
}

TEST_CASE("a stream whose reader is gone does not block the console") {
  Pipe out;
  out.read_end.reset();
  Console console(out.write_end.get(), out.write_end.get(), nullptr);
  console.write(Console::Stream::out, "lost");
  CHECK(console.drain(5s));
  CHECK_FALSE(console.write_failed());
}

TEST_CASE("a full device is an error, and the other stream is written") {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Pipe err;
  Console console(full.get(), err.write_end.get(), nullptr);
  const LogThroughConsole log(console);
  console.write(Console::Stream::out, "lost");
  console.write(Console::Stream::out, "lost");
  CHECK(console.drain(5s));
  CHECK(console.write_failed());
  const std::string line = "[ddprun] error: cannot write to standard output: No space left on device\n";
  console.write(Console::Stream::err, "x");
  CHECK(err.read_all(line.size() + 1) == line + "x");
}
