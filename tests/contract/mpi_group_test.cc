// The group contract over MPI. Its ranks are threads of the test; here each thread's group is a process of one mpirun,
// to which it passes its calls. DDPRUN_TEST_MPI names the MPI.
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "rendezvous/store/store_server_thread.h"
#include "worker/comm/operations/completion.h"
#include "tests/contract/call_message.h"
#include "tests/contract/group_contract.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::contract;

namespace {

constexpr int most_ranks = 4;

// A process of a rank, and the requests to it that it has not answered.
class RankProcess {
 public:
  using Answer = std::function<void(MessageReader& message, const std::optional<Error>& error)>;

  explicit RankProcess(int socket) : socket_(socket), thread_([this] { read(); }) {}
  ~RankProcess() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // fill appends to the message.
  template <class Fill>
  void request(Request kind, std::uint64_t group, Fill fill, Answer answer) {
    const std::lock_guard lock(mutex_);
    MessageWriter message;
    message.put(++last_);
    message.put(kind);
    message.put(group);
    fill(message);
    answers_[last_] = std::move(answer);
    if (!ended_ && send_message(socket_, message.text())) return;
    auto failed = std::move(answers_[last_]);
    answers_.erase(last_);
    MessageReader nothing("");
    failed(nothing, Error(Errc::internal, "the process of a rank has ended"));
  }
  // Does what request() does, but waits for the answer, and throws its error.
  template <class Fill>
  std::uint64_t ask(Request kind, std::uint64_t group, Fill fill) {
    std::promise<std::uint64_t> promise;
    request(kind, group, fill, [&](MessageReader& message, const std::optional<Error>& error) {
      if (error) return promise.set_exception(std::make_exception_ptr(*error));
      promise.set_value(message.get<std::uint64_t>());
    });
    return promise.get_future().get();
  }

 private:
  void read() {
    while (auto text = receive_message(socket_)) {
      MessageReader message(std::move(*text));
      const auto answer = take(message.get<std::uint64_t>());
      std::optional<Error> error;
      if (!message.get<bool>()) {
        const auto code = message.get<Errc>();
        error = Error(code, message.get_text());
      }
      answer(message, error);
    }
    std::map<std::uint64_t, Answer> unanswered;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      unanswered.swap(answers_);
    }
    MessageReader nothing("");
    for (const auto& [id, answer] : unanswered)
      answer(nothing, Error(Errc::internal, "the process of a rank has ended"));
  }
  Answer take(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    auto answer = std::move(answers_.at(id));
    answers_.erase(id);
    return answer;
  }

  const int socket_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  bool ended_ = false;
  std::map<std::uint64_t, Answer> answers_;
  std::thread thread_;  // last, since it uses all members above
};

// One mpirun for all test cases.
class MpiJob {
 public:
  static MpiJob& instance() {
    static MpiJob job(std::getenv("DDPRUN_TEST_MPI"));
    return job;
  }
  RankProcess& process(int rank) { return *processes_[static_cast<std::size_t>(rank)]; }

 private:
  explicit MpiJob(const std::string& mpi) {
    const auto path = (folder_ / "socket").string();
    const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
    REQUIRE(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(listening, most_ranks) == 0);
    start(mpi, path);
    processes_.resize(most_ranks);
    for (int i = 0; i < most_ranks; ++i) {
      const int socket = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
      const auto greeting = receive_message(socket);
      REQUIRE(greeting);
      processes_[static_cast<std::size_t>(MessageReader(*greeting).get<int>())] = std::make_unique<RankProcess>(socket);
    }
    ::close(listening);
  }
  ~MpiJob() {
    processes_.clear();
    ::kill(mpirun_, SIGTERM);
    ::waitpid(mpirun_, nullptr, 0);
  }

  void start(const std::string& mpi, const std::string& path) {
    std::vector<std::string> words{"mpirun." + mpi, "-n", std::to_string(most_ranks)};
    if (mpi == "openmpi") {
      // In a common folder for sessions, Open MPI fails if another job makes that at the same time.
      ::setenv("OMPI_MCA_orte_tmpdir_base", folder_.path().c_str(), 1);
      ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
      ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
      words.emplace_back("--oversubscribe");
    }
    words.insert(words.end(), {MPI_RANK_PROGRAM, path});
    std::vector<char*> arguments;
    for (auto& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    REQUIRE(::posix_spawnp(&mpirun_, arguments[0], nullptr, nullptr, arguments.data(), environ) == 0);
  }

  const testing::TempDir folder_;
  pid_t mpirun_ = 0;
  std::vector<std::unique_ptr<RankProcess>> processes_;
};

// A group of another process.
class RemoteGroup : public ProcessGroup {
 public:
  RemoteGroup(RankProcess& process, std::uint64_t handle, int rank, int size, std::shared_ptr<void> server)
      : process_(process), handle_(handle), rank_(rank), size_(size), server_(std::move(server)) {}
  ~RemoteGroup() override {
    try {
      process_.ask(Request::destroy, handle_, [](auto&) {});
    } catch (const Error&) {  // the process has ended, and a test case has seen it
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }
  std::optional<Error> failure() const override { return std::nullopt; }
  void abort(const std::string& reason) override {
    process_.ask(Request::abort, handle_, [&](MessageWriter& message) { message.put(reason); });
  }

  WorkPtr start(const comm::Call& call) override {
    const auto work = std::make_shared<comm::Completion>(call.operation);
    process_.request(
        Request::start, handle_, [&](MessageWriter& message) { put_call(message, call); },
        [work, outputs = outputs_of(call)](MessageReader& message, const std::optional<Error>& error) {
          if (error) return work->fail(*error);
          const auto source = static_cast<int>(message.get<std::uint64_t>()) - 1;
          for (const auto& each : outputs) message.get_bytes(each.data, each.bytes());
          work->complete(source);
        });
    if (call.options.blocking) {
      try {
        work->wait(Deadline::never());
      } catch (const Error&) {  // it is the caller's error
      }
    }
    return work;
  }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    const auto handle = process_.ask(Request::subgroup, handle_, [&](MessageWriter& message) {
      message.put(ranks);
      message.put(name);
    });
    const auto position = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<RemoteGroup>(process_, handle, static_cast<int>(position), static_cast<int>(ranks.size()),
                                         server_);
  }

 private:
  RankProcess& process_;
  const std::uint64_t handle_;
  const int rank_, size_;
  const std::shared_ptr<void> server_;  // the store's server
};

Groups make_mpi(int size, std::chrono::milliseconds timeout) {
  const auto server = std::make_shared<StoreServerThread>(StoreServerOptions{.host = "127.0.0.1"});
  auto& job = MpiJob::instance();
  Groups groups(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto& process = job.process(rank);
      const auto handle = process.ask(Request::make, 0, [&](MessageWriter& message) {
        message.put(rank);
        message.put(size);
        message.put(server->port());
        message.put(timeout.count());
      });
      groups[static_cast<std::size_t>(rank)] = std::make_unique<RemoteGroup>(process, handle, rank, size, server);
    });
  }
  for (auto& thread : threads) thread.join();
  return groups;
}

}  // namespace

DDPRUN_GROUP_CONTRACT("mpi", make_mpi, {1, 2, 3, 4})
