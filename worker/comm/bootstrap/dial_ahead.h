#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "rendezvous/store/store.h"

namespace ddprun::comm {

// Connections to the store that threads of their own dial before they are needed.
//
// Ownership: owns the connections until they are taken, and the threads. Threads: any thread may call the methods.
// Errors: none; a dialling that fails leaves no connection.
class DialAhead {
 public:
  // Dials until a stop is requested; what it returns or throws is that of a new connection.
  using Dial = std::function<std::shared_ptr<Store>(std::stop_token stop)>;

  explicit DialAhead(Dial dial) : dial_(std::move(dial)) {}

  // Begins to dial so many, in place of those that nobody has taken. Where no thread can be started, take() dials.
  void begin(int count);
  // Returns one of them, once it is there; null if there is none.
  std::shared_ptr<Store> take();

 private:
  // Its destructor ends the dialling.
  struct Dialling {
    std::stop_source stop;
    std::future<std::shared_ptr<Store>> store;

    Dialling() = default;
    Dialling(Dialling&&) = default;
    Dialling& operator=(Dialling&&) = delete;
    ~Dialling() {
      if (store.valid()) stop.request_stop();
    }
  };

  const Dial dial_;
  std::mutex mutex_;
  std::vector<Dialling> begun_;  // guarded by mutex_
};

}  // namespace ddprun::comm
