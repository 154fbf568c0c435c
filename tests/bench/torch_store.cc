#include "tests/bench/torch_store.h"

#include <array>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "common/environment.h"

namespace ddprun::bench {
namespace {

// Prints operations a second, then the median and the 99th percentile in microseconds. The server and each client are
// forked after the import, which takes longer than all the rest.
constexpr const char* script = R"py(
import datetime, os, signal, sys, time
import torch.distributed as dist
op, n, size, seconds, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
time_limit = datetime.timedelta(seconds=60)
def child(work):
    down, up = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work(os.fdopen(down[0]), os.fdopen(up[1], 'w', 1))
        finally:
            os._exit(0)
    return pid, os.fdopen(down[1], 'w', 1), os.fdopen(up[0])
def serve(ears, mouth):
    store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, timeout=time_limit)
    print(store.port, file=mouth)
    ears.readline()
servers = [] if port else [child(serve)]
for server in servers:
    port = int(server[2].readline())
def client(number):
    def work(ears, mouth):
        store = dist.TCPStore('127.0.0.1', port, is_master=False, wait_for_workers=False, timeout=time_limit)
        key, value, times, clock = 'bench/%d' % number, 'v' * size, [], time.perf_counter
        store.set(key, value)
        store.get(key)
        call = {'set': lambda: store.set(key, value), 'get': lambda: store.get(key),
                'add': lambda: store.add('n' + key, 1)}[op]
        print('here', file=mouth)
        ears.readline()
        begin = before = clock()
        while before - begin < seconds:
            call()
            now = clock()
            times.append(now - before)
            before = now
        if op == 'set':
            store.get(key)
        print(len(times), clock() - begin, *['%.1f' % (t * 1e6) for t in times[::max(1, len(times) // 2000)]],
              file=mouth)
    return child(work)
clients = [client(i) for i in range(n)]
for c in clients:
    c[2].readline()
begin = time.perf_counter()
for c in clients:
    print('go', file=c[1])
said = [c[2].readline().split() for c in clients]
elapsed = time.perf_counter() - begin
for c in clients + servers:
    os.kill(c[0], signal.SIGKILL)
    os.waitpid(c[0], 0)
latencies = sorted(float(t) for s in said for t in s[2:])
at = lambda share: 0.0 if op == 'set' else latencies[min(len(latencies) - 1, int(share * len(latencies)))]
print(sum(int(s[0]) for s in said) / elapsed, at(0.5), at(0.99))
)py";

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string text;
  std::array<char, 4096> chunk;
  while (pipe && std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe.get())) text += chunk.data();
  return text;
}

}  // namespace

bool TorchStore::available() {
  if (Environment::capture().get("DDPRUN_TORCH_PYTHON")) return true;
  std::fprintf(stderr, "tcpstore is left out: DDPRUN_TORCH_PYTHON names no Python that has torch\n");
  return false;
}

std::optional<TorchFigures> TorchStore::measure(const std::string& op, int connections, std::size_t value_bytes,
                                                double seconds, std::uint16_t port) {
  const auto python = Environment::capture().get("DDPRUN_TORCH_PYTHON").value_or("python3");
  const auto text = output_of(fmt::format("{} -c {} {} {} {} {} {}", quoted(python), quoted(script), op, connections,
                                          value_bytes, seconds, port));
  TorchFigures figures;
  if (std::sscanf(text.c_str(), "%lf %lf %lf", &figures.ops_per_s, &figures.p50_us, &figures.p99_us) == 3)
    return figures;
  std::fprintf(stderr, "tcpstore is left out for %s over %d connections: %s gave no figures\n", op.c_str(), connections,
               python.c_str());
  return std::nullopt;
}

}  // namespace ddprun::bench
