#include "rendezvous/store/store_server_thread.h"

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace ddprun {

struct StoreServerThread::Parts {
  explicit Parts(const StoreServerOptions& options) { server.emplace(loop, options); }

  // Runs on the server's thread.
  void announce_end();
  void count_clients();
  bool await(bool Parts::*reached, Deadline deadline);

  boost::asio::io_context loop{1};
  std::optional<StoreServer> server;  // its pending accept keeps the loop's run() from returning
  std::thread thread;

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  bool end_known = false, unused = false;
};

void StoreServerThread::Parts::announce_end() {
  server->announce_end([this] { count_clients(); });
  count_clients();
}

void StoreServerThread::Parts::count_clients() {
  if (!server) return;
  const std::lock_guard lock(mutex);
  end_known = server->unaware() == 0;
  unused = server->connections() == 0;
  if (unused) server.reset();
  changed.notify_all();
}

bool StoreServerThread::Parts::await(bool Parts::*reached, Deadline deadline) {
  std::unique_lock lock(mutex);
  const auto is_reached = [&] { return this->*reached; };
  if (deadline.when()) return changed.wait_until(lock, *deadline.when(), is_reached);
  changed.wait(lock, is_reached);
  return true;
}

namespace {

// A signal to the process must run on a thread of the program, not on this one.
std::thread start_without_signals(boost::asio::io_context& loop) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([&loop] { loop.run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

StoreServerThread::StoreServerThread(const StoreServerOptions& options)
    : parts_(std::make_unique<Parts>(options)), port_(parts_->server->port()), endpoint_(parts_->server->endpoint()) {
  parts_->thread = start_without_signals(parts_->loop);
}

StoreServerThread::~StoreServerThread() {
  boost::asio::post(parts_->loop, [parts = parts_.get()] { parts->server.reset(); });
  parts_->thread.join();
}

void StoreServerThread::announce_end() {
  boost::asio::post(parts_->loop, [parts = parts_.get()] { parts->announce_end(); });
}
bool StoreServerThread::await_end_known(Deadline deadline) {
  return parts_->await(&Parts::end_known, deadline);
}
bool StoreServerThread::await_unused(Deadline deadline) {
  return parts_->await(&Parts::unused, deadline);
}

}  // namespace ddprun
