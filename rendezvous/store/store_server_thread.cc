#include "ddprun/rendezvous/store/store_server_thread.h"

#include <csignal>
#include <optional>
#include <pthread.h>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace ddprun {

struct StoreServerThread::Parts {
  explicit Parts(const StoreServerOptions& options) { server.emplace(loop, options); }

  boost::asio::io_context loop{1};
  std::optional<StoreServer> server;  // its pending accept keeps the loop's run() from returning
  std::thread thread;
};

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

}  // namespace ddprun
