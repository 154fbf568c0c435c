#include "ddprun/worker/comm/backends/mpi/mpi_thread.h"

#include "ddprun/common/blocked_signals.h"

namespace ddprun::comm {
namespace {

// The functions of the table have no context.
struct Target {
  MpiThread* thread = nullptr;
  const MpiFunctions* functions = nullptr;
} target;

template <auto member>
struct Delegated;
template <class... Arguments, int (*MpiFunctions::*member)(Arguments...)>
struct Delegated<member> {
  static int call(Arguments... arguments) {
    int code = 0;
    target.thread->run([&] { code = (target.functions->*member)(arguments...); });
    return code;
  }
};

constexpr MpiFunctions delegating(int version, const char* name) {
  return {.version = version,
          .name = name,
          .initialize = Delegated<&MpiFunctions::initialize>::call,
          .finalize = Delegated<&MpiFunctions::finalize>::call,
          .world = Delegated<&MpiFunctions::world>::call,
          .host = Delegated<&MpiFunctions::host>::call,
          .error_text = Delegated<&MpiFunctions::error_text>::call,
          .create_communicator = Delegated<&MpiFunctions::create_communicator>::call,
          .broadcast_in_world = Delegated<&MpiFunctions::broadcast_in_world>::call,
          .start = Delegated<&MpiFunctions::start>::call,
          .send = Delegated<&MpiFunctions::send>::call,
          .receive = Delegated<&MpiFunctions::receive>::call,
          .test_all = Delegated<&MpiFunctions::test_all>::call,
          .test_receive = Delegated<&MpiFunctions::test_receive>::call,
          .cancel_receive = Delegated<&MpiFunctions::cancel_receive>::call,
          .plain_allreduce = Delegated<&MpiFunctions::plain_allreduce>::call,
          .plain_iallreduce = Delegated<&MpiFunctions::plain_iallreduce>::call};
}

}  // namespace

MpiThread::MpiThread() : thread_(start_signal_free_thread([this] { work(); })) {}

MpiThread::~MpiThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void MpiThread::run(const std::function<void()>& body) {
  Call call{body};
  std::unique_lock lock(mutex_);
  calls_.push_back(&call);
  arrived_.notify_one();
  done_.wait(lock, [&] { return call.done; });
}

void MpiThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    auto* const call = calls_.front();
    calls_.pop_front();
    lock.unlock();
    call->body();
    lock.lock();
    call->done = true;
    done_.notify_all();
  }
}

const MpiFunctions* MpiThread::delegate(const MpiFunctions& functions) {
  static MpiFunctions table;
  target = {this, &functions};
  table = delegating(functions.version, functions.name);
  return &table;
}

}  // namespace ddprun::comm
