// ddprun's store with PyTorch's, in both directions. DDPRUN_TORCH_PYTHON names the interpreter, by default python3;
// skipped if it cannot import torch 2.5 or newer.
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/atomic_file.h"
#include "common/environment.h"
#include "common/error.h"
#include "common/unique_fd.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

Deadline soon() {
  return Deadline::in(60s);
}

// A Python program with the folder as its argument; the destructor closes its standard input and waits for it.
class Python {
 public:
  Python(const std::string& program, const std::filesystem::path& folder) {
    write_file_atomically(folder / "program.py", program);
    const auto python = Environment::capture().get("DDPRUN_TORCH_PYTHON").value_or("python3");
    const auto command = fmt::format("{} {} {} 2>{}", python, (folder / "program.py").string(), folder.string(),
                                     (folder / "stderr").string());
    pipe_ = ::popen(command.c_str(), "w");
  }
  Python(const Python&) = delete;
  Python& operator=(const Python&) = delete;
  ~Python() { finish(); }

  int finish() { return pipe_ ? ::pclose(std::exchange(pipe_, nullptr)) : -1; }

 private:
  std::FILE* pipe_;
};

// A named pipe through which a program reports its port, on a line.
class PortPipe {
 public:
  explicit PortPipe(const std::filesystem::path& path) {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    pipe_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));  // no end of file before the program has opened it
  }
  std::uint16_t read() const {
    const auto deadline = soon();
    std::string line;
    while (!line.ends_with('\n')) {
      pollfd readable{pipe_.get(), POLLIN, 0};
      char byte = 0;
      REQUIRE(::poll(&readable, 1, deadline.poll_timeout_ms()) == 1);
      REQUIRE(::read(pipe_.get(), &byte, 1) == 1);
      line += byte;
    }
    return static_cast<std::uint16_t>(std::stoi(line));
  }

 private:
  UniqueFd pipe_;
};

bool has_torch(const std::filesystem::path& folder) {
  Python probe(
      "import torch\nfrom torch.distributed import TCPStore\n"
      "v = torch.__version__.split('.')\nassert (int(v[0]), int(v[1])) >= (2, 5)\n",
      folder);
  return probe.finish() == 0;
}
#define SKIP_WITHOUT_TORCH(dir) \
  if (!has_torch((dir).path())) SKIP("python3 (or DDPRUN_TORCH_PYTHON) cannot import torch 2.5 or newer")

constexpr const char* client_program = R"(
import sys, datetime
from torch.distributed import TCPStore, PrefixStore
port = int(open(sys.argv[1] + "/port").read())
s = TCPStore("127.0.0.1", port, 2, False, datetime.timedelta(seconds=30))
def times_out(f):
    try: f()
    except Exception as e: return "timeout" in str(e).lower()
    return False
assert s.get("from-cpp") == b"hello"
s.set("k", "v"); assert s.get("k") == b"v"
assert s.add("n", 5) == 5 and s.add("n", -7) == -2 and s.get("n") == b"-2"
assert s.compare_set("cs", "X", "Y") == b"X" and s.compare_set("cs", "", "A") == b"A"
assert s.compare_set("cs", "A", "B") == b"B" and s.compare_set("cs", "A", "C") == b"B"
assert s.check(["k"]) and not s.check(["k", "x"])
assert s.delete_key("k") and not s.delete_key("k")
s.append("a", "x"); s.append("a", "yz"); assert s.get("a") == b"xyz"
s.multi_set(["m1", "m2"], ["1", "2"]); assert s.multi_get(["m1", "m2"]) == [b"1", b"2"]
assert times_out(lambda: s.wait(["nope"], datetime.timedelta(milliseconds=100)))
assert s.get("a") == b"xyz"
if hasattr(s, "queue_push"):
    s.queue_push("q", "hi"); assert s.queue_len("q") == 1 and s.queue_pop("q") == b"hi"
if hasattr(s, "list_keys"):
    assert "m1" in s.list_keys() and "init/" not in s.list_keys()
if hasattr(s, "barrier"):
    s.barrier("once", 1, datetime.timedelta(seconds=5))
    assert times_out(lambda: s.barrier("never", 2, datetime.timedelta(milliseconds=100)))
p = PrefixStore("pre", s); p.set("z", "1"); assert s.get("pre/z") == b"1"
s.set("big", "x" * (8 << 20)); assert len(s.get("big")) == 8 << 20
s.set("done", "yes"); s.num_keys()
)";

constexpr const char* server_program = R"(
import sys, datetime
from torch.distributed import TCPStore
s = TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=30), use_libuv=LIBUV)
s.set("from-python", "hello")
with open(sys.argv[1] + "/port", "w") as pipe: pipe.write(str(s.port) + "\n")
s.get("done")
sys.stdin.read()
)";

void use_torch_server(bool libuv) {
  testing::TempDir dir;
  SKIP_WITHOUT_TORCH(dir);
  std::string program = server_program;
  program.replace(program.find("LIBUV"), 5, libuv ? "True" : "False");
  const PortPipe pipe(dir / "port");
  Python server(program, dir.path());
  const auto port = pipe.read();
  {
    TcpStore s({.host = "127.0.0.1", .port = port}, soon());
    CHECK_FALSE(s.has_ddprun_extensions());
    CHECK(s.get("from-python", soon()) == "hello");
    CHECK(s.add("n", 5, soon()) == 5);
    CHECK(s.add("n", -7, soon()) == -2);
    CHECK(s.get("n", soon()) == "-2");
    CHECK(s.compare_set("cs", "X", "Y", soon()) == "X");
    CHECK(s.compare_set("cs", "", "A", soon()) == "A");
    CHECK(s.compare_set("cs", "A", "B", soon()) == "B");
    CHECK(s.compare_set("cs", "A", "C", soon()) == "B");
    CHECK_FALSE(s.check({"n", "x"}, soon()));
    CHECK(s.erase("cs", soon()));
    s.append("a", "x", soon());
    s.append("a", "yz", soon());
    s.multi_set({{"m1", "1"}, {"m2", ""}}, soon());
    CHECK(s.multi_get({"a", "m1", "m2"}, soon()) == std::vector<std::string>{"xyz", "1", ""});
    CHECK_THROWS_WITH(s.wait({"nope"}, Deadline::in(100ms)), Catch::Contains("timed out"));
    CHECK_THROWS_WITH(s.get("nope", Deadline::in(100ms)), Catch::Contains("timed out"));
    CHECK(s.get("n", Deadline::in(0ms)) == "-2");
    if (libuv) {
      s.queue_push("q", "hi", soon());
      CHECK(s.queue_pop("q", soon()) == "hi");
      CHECK_THROWS_WITH(s.queue_pop("q", Deadline::in(100ms)), Catch::Contains("timed out"));
    }
    const std::string value(8 << 20, 'x');
    s.set("big", value, soon());
    CHECK(s.get("big", soon()) == value);
    CHECK(s.execute({FindCall{"n"}, FindCall{"missing"}, SetCall{"late", "v"}, FindCall{"late"}}, soon()) ==
          StoreResults{"-2", std::nullopt, std::nullopt, "v"});
    CHECK(s.wait_get("late", soon()) == "v");
    CHECK_THROWS_WITH(s.set_will("w", "", soon()), Catch::Contains("this is PyTorch's"));
    CHECK(s.join(soon()) >= 1);
    s.set("done", "yes", soon());
    CHECK(s.num_keys(soon()) > 5);
  }
  CHECK(server.finish() == 0);
}

}  // namespace

TEST_CASE("PyTorch's client uses ddprun's server") {
  testing::TempDir dir;
  SKIP_WITHOUT_TORCH(dir);
  StoreServerThread server;
  write_file_atomically(dir / "port", std::to_string(server.port()));
  TcpStore ours({.host = "127.0.0.1", .port = server.port()}, soon());
  ours.set("from-cpp", "hello", soon());
  Python client(client_program, dir.path());
  CHECK(client.finish() == 0);
  INFO(read_whole_file(dir / "stderr"));
  CHECK(ours.check({"done"}, soon()));
}

TEST_CASE("ddprun's client uses PyTorch's server") {
  use_torch_server(true);
}
TEST_CASE("ddprun's client uses PyTorch's older server") {
  use_torch_server(false);
}
