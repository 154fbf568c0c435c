#include "launcher/mpi/pmi_exchange.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/log.h"
#include "rendezvous/store/tcp_store.h"

namespace ddprun {
namespace {

// The agent of group rank 0 serves the store before any node starts its workers.
constexpr std::chrono::seconds connect_timeout{30};
// The value that a node stores instead of pairs when it leaves.
constexpr const char* left = "left";

}  // namespace

class PmiExchange::Worker {
 public:
  Worker(boost::asio::io_context& loop, const Round& round, Handler on_done)
      : loop_(loop), round_(round), on_done_(std::make_shared<Handler>(std::move(on_done))) {
    thread_ = start_signal_free_thread([this] { work(); });
  }
  ~Worker() {
    stop_.request_stop();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    arrived_.notify_one();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(std::string value) {
    {
      const std::lock_guard lock(mutex_);
      values_.push_back(std::move(value));
    }
    arrived_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      arrived_.wait(lock, [this] { return stopping_ || !values_.empty(); });
      if (stopping_) return;
      const auto value = std::exchange(values_.front(), {});
      values_.pop_front();
      lock.unlock();
      perform(value);
      lock.lock();
    }
  }

  void perform(const std::string& value) {
    PmiPairs pairs;
    std::string error;
    try {
      publish(value);
      if (value == left) return;
      pairs = collect();
    } catch (const Error& e) {
      // The process that served the store is gone, which the rendezvous reports to this node, or this object is gone.
      if (e.code() == Errc::connection_lost || e.code() == Errc::aborted)
        return log::debug("the barrier of MPI processes is given up: {}", e.what());
      error = e.what();
    }
    // The handler is gone once the loop has destroyed this object.
    boost::asio::post(loop_,
                      [pairs = std::move(pairs), error = std::move(error), handler = std::weak_ptr<Handler>(on_done_)] {
                        if (const auto alive = handler.lock()) (*alive)(pairs, error);
                      });
  }

  void publish(const std::string& value) {
    if (!store_)
      store_ = std::make_unique<TcpStore>(
          TcpStoreOptions{.host = round_.master_addr, .port = round_.master_port, .stop = stop_.get_token()},
          Deadline::in(connect_timeout));
    store_->set(key_of(round_.self), value, Deadline::in(connect_timeout));
  }

  PmiPairs collect() {
    std::vector<int> others;
    for (const auto& member : round_.members)
      if (member.group_rank != round_.self) others.push_back(member.group_rank);
    std::vector<std::string> keys;
    for (const int other : others) keys.push_back(key_of(other));
    const auto values = store_->multi_get(keys, Deadline::never());
    PmiPairs all;
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto pairs = decode_pmi_pairs(values[i]);
      if (!pairs)
        throw make_error(Errc::peer_lost, "node {} (host {}): its workers have ended without entering it", others[i],
                         round_.members.at(static_cast<std::size_t>(others[i])).host);
      all.insert(all.end(), std::make_move_iterator(pairs->begin()), std::make_move_iterator(pairs->end()));
    }
    ++barriers_;
    return all;
  }

  std::string key_of(int node) const { return fmt::format("pmi/{}/{}/{}", round_.generation, barriers_, node); }

  boost::asio::io_context& loop_;
  const Round round_;
  const std::shared_ptr<Handler> on_done_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::string> values_;
  bool stopping_ = false;
  int barriers_ = 0;  // number of barriers in this round so far
  std::unique_ptr<TcpStore> store_;
  std::thread thread_;
};

PmiExchange::PmiExchange(boost::asio::io_context& loop, const Round& round, Handler on_done)
    : worker_(std::make_unique<Worker>(loop, round, std::move(on_done))) {}

PmiExchange::~PmiExchange() = default;

void PmiExchange::exchange(const PmiPairs& pairs) {
  worker_->add(encode_pmi_pairs(pairs));
}

void PmiExchange::leave() {
  worker_->add(left);
}

}  // namespace ddprun
