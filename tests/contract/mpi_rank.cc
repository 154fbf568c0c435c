// A rank of the groups of mpi_group_test: a process that mpirun starts. It makes groups and their calls as the test
// requests through a socket.
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/detached_thread.h"
#include "common/environment.h"
#include "common/error.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/backends/mpi/mpi_group.h"
#include "worker/comm/backends/mpi/mpi_library.h"
#include "worker/comm/launch_env.h"
#include "tests/contract/call_message.h"

using namespace ddprun;
using namespace ddprun::contract;

namespace {

using GroupPtr = std::shared_ptr<ProcessGroup>;

int connect_to(const char* path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw std::runtime_error("cannot connect to the test");
  return socket;
}

// A call in this process, on copies of the test's memory, every second time in memory of the group.
struct LocalCall {
  comm::Call call;
  std::vector<Span> outputs;
  std::vector<std::vector<std::byte>> own;
  std::vector<RegisteredBuffer> registered;

  LocalCall(MessageReader& message, ProcessGroup& group, bool in_registered) {
    call.operation = message.get<comm::Operation>();
    call.input = message.get<ConstSpan>();
    call.output = message.get<Span>();
    if (const auto timeout = message.get<std::chrono::milliseconds::rep>(); timeout >= 0)
      call.options.timeout = std::chrono::milliseconds(timeout);
    call.options.blocking = message.get<bool>();
    auto layout = std::make_shared<comm::Layout>();
    const bool has_layout = message.get<bool>();
    if (has_layout) {
      for (auto* parts : {&layout->input_parts, &layout->output_parts})
        if (message.get<bool>()) *parts = std::make_unique<const comm::Parts>(message.get_vector<std::size_t>());
      layout->inputs = message.get_vector<ConstSpan>();
      layout->outputs = message.get_vector<Span>();
    }
    copy_blocks(message, group, in_registered);
    call.input.data = local(call.input.data);
    call.output.data = local(call.output.data);
    for (auto& each : layout->inputs) each.data = local(each.data);
    for (auto& each : layout->outputs) each.data = local(each.data);
    if (has_layout) call.layout = layout;
    outputs = outputs_of(call);
  }

 private:
  struct Copied {
    Blocks::Block block;
    std::byte* copy;
  };
  std::vector<Copied> copies_;

  void copy_blocks(MessageReader& message, ProcessGroup& group, bool in_registered) {
    for (const auto& block : message.get_vector<Blocks::Block>()) {
      std::byte* copy = nullptr;
      if (in_registered) {
        copy = registered.emplace_back(group.allocate(block.bytes)).data();
      } else {
        copy = own.emplace_back(block.bytes).data();
      }
      copies_.push_back({block, copy});
    }
    for (const auto& each : copies_) message.get_bytes(each.copy, each.block.bytes);
  }
  void* local(const void* remote) const {
    const auto address = reinterpret_cast<std::uintptr_t>(remote);
    for (const auto& [block, copy] : copies_)
      if (address >= block.address && address < block.address + block.bytes) return copy + (address - block.address);
    return const_cast<void*>(remote);  // for no bytes it is null, or not
  }
};

// Waits for the collectives of a group, which finish in the order of the calls. Its thread ends with the process.
class Waiter {
 public:
  void add(std::function<void()> wait) {
    const std::lock_guard lock(mutex_);
    waits_.push_back(std::move(wait));
    changed_.notify_one();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !waits_.empty(); });
      const auto next = std::move(waits_.front());
      waits_.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waits_;
};

class RankProcess {
 public:
  explicit RankProcess(int socket) : socket_(socket) {}

  void run() {
    while (auto text = receive_message(socket_)) {
      auto message = std::make_shared<MessageReader>(std::move(*text));
      const auto id = message->get<std::uint64_t>();
      const auto request = message->get<Request>();
      const auto handle = message->get<std::uint64_t>();
      if (request == Request::start) {
        start(id, handle, *message);
      } else {
        apart(id, [this, request, handle, message, id] { answer(id, request, handle, *message); });
      }
    }
  }

 private:
  template <class Body>
  void apart(std::uint64_t id, Body body) {
    start_detached_thread([this, id, body = std::move(body)] {
      try {
        body();
      } catch (const std::exception& error) {
        fail(id, error);
      }
    });
  }

  void answer(std::uint64_t id, Request request, std::uint64_t handle, MessageReader& message) {
    if (request == Request::make) return reply(id, keep(make(message)));
    if (request == Request::destroy) {
      auto group = take(handle);
      group.reset();
      return reply(id, 0);
    }
    const auto group = find(handle);
    if (request == Request::abort) {
      group->abort(message.get_text());
      return reply(id, 0);
    }
    const auto ranks = message.get_vector<int>();
    reply(id, keep(group->make_subgroup(ranks, message.get_text())));
  }

  static GroupPtr make(MessageReader& message) {
    const auto rank = message.get<int>(), size = message.get<int>();
    const auto port = message.get<std::uint16_t>();
    const std::chrono::milliseconds timeout(message.get<std::chrono::milliseconds::rep>());
    const auto connect = [port] {
      return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = port},
                                        Deadline::in(std::chrono::seconds(10)));
    };
    return comm::make_mpi_group({.rank = rank,
                                 .size = size,
                                 .connect_store = connect,
                                 .config = {.timeout = timeout, .heartbeat = std::chrono::milliseconds(200)}});
  }

  // Calls start in the order of the requests, but the test waits for a blocking call before it makes the next.
  void start(std::uint64_t id, std::uint64_t handle, MessageReader& message) try {
    const auto group = find(handle);
    auto call = std::make_shared<LocalCall>(message, *group, calls_++ % 2 == 1);
    if (call->call.options.blocking)
      return apart(id, [this, id, group, call] { finish(id, *group->start(call->call), *call); });
    auto work = group->start(call->call);
    if (call->call.operation.point_to_point()) return apart(id, [this, id, call, work] { finish(id, *work, *call); });
    waiter(handle).add([this, id, call, work] {
      try {
        finish(id, *work, *call);
      } catch (const std::exception& error) {
        fail(id, error);
      }
    });
  } catch (const std::exception& error) {
    fail(id, error);
  }

  void finish(std::uint64_t id, Work& work, const LocalCall& call) {
    work.wait();
    MessageWriter message = done(id);
    message.put(static_cast<std::uint64_t>(work.source() + 1));
    for (const auto& each : call.outputs) message.put_bytes(each.data, each.bytes());
    send(message);
  }

  Waiter& waiter(std::uint64_t handle) {
    auto& waiter = waiters_[handle];
    if (!waiter) {
      waiter = std::make_unique<Waiter>();
      start_detached_thread([running = waiter.get()] { running->run(); });
    }
    return *waiter;
  }

  static MessageWriter done(std::uint64_t id) {
    MessageWriter message;
    message.put(id);
    message.put(true);
    return message;
  }
  void reply(std::uint64_t id, std::uint64_t value) {
    auto message = done(id);
    message.put(value);
    send(message);
  }
  void fail(std::uint64_t id, const std::exception& failure) {
    const auto* const error = dynamic_cast<const Error*>(&failure);
    MessageWriter message;
    message.put(id);
    message.put(false);
    message.put(error ? error->code() : Errc::internal);
    message.put(std::string(failure.what()));
    send(message);
  }
  void send(const MessageWriter& message) {
    const std::lock_guard lock(sending_);
    send_message(socket_, message.text());
  }

  std::uint64_t keep(GroupPtr group) {
    const std::lock_guard lock(mutex_);
    groups_[++last_] = std::move(group);
    return last_;
  }
  GroupPtr find(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    return groups_.at(handle);
  }
  GroupPtr take(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    auto group = std::move(groups_.at(handle));
    groups_.erase(handle);
    return group;
  }

  const int socket_;
  std::mutex sending_, mutex_;
  std::map<std::uint64_t, GroupPtr> groups_;
  std::map<std::uint64_t, std::unique_ptr<Waiter>> waiters_;  // used by the thread that starts calls
  std::uint64_t last_ = 0, calls_ = 0;
};

}  // namespace

int main(int, char** argv) try {
  // This call is collective over the world: also for processes outside the first group.
  comm::MpiLibrary::instance(CommConfig{}.timeout);
  const int socket = connect_to(argv[1]);
  MessageWriter greeting;
  greeting.put(WorkerEnv::from(Environment::capture()).rank);
  send_message(socket, greeting.text());
  RankProcess(socket).run();
  std::_Exit(0);  // MPI may have unfinished operations of groups that were broken
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
