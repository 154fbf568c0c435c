#include "launcher/dashboard/request_thread.h"

#include <condition_variable>
#include <optional>
#include <stdexcept>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "common/error.h"
#include "rendezvous/membership/session_request.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::dashboard;
namespace asio = boost::asio;

namespace {

void wait_for_stop(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait(lock, stop, [] { return false; });
}

}  // namespace

TEST_CASE("requests are executed in their order, and what follows of them on the loop") {
  asio::io_context loop;
  auto work = std::optional(asio::make_work_guard(loop));
  std::vector<int> followed;
  std::vector<std::string> problems;
  const auto main = std::this_thread::get_id();
  RequestThread requests(loop);
  const auto add = [&](int number) {
    requests.add({.ask = [&, number](const std::stop_token&) -> std::function<void()> {
                    CHECK(std::this_thread::get_id() != main);
                    if (number == 1) throw std::runtime_error("no answer");
                    return [&, number] {
                      CHECK(std::this_thread::get_id() == main);
                      followed.push_back(number);
                      if (number == 2) work.reset();
                    };
                  },
                  .failed = [&](const std::string& problem) { problems.push_back(problem); }});
  };
  for (int number = 0; number < 3; ++number) add(number);
  loop.run();
  CHECK(followed == std::vector{0, 2});
  CHECK(problems == std::vector<std::string>{"no answer"});
}

TEST_CASE("the end of a thread of requests ends the one in progress, and nothing follows of it") {
  asio::io_context loop;
  std::atomic<bool> asked{false};
  bool followed = false;
  {
    RequestThread requests(loop);
    requests.add({.ask = [&](const std::stop_token& stop) -> std::function<void()> {
                    asked = true;
                    wait_for_stop(stop);
                    return [&] { followed = true; };
                  },
                  .failed = [](const std::string&) {}});
    while (!asked) std::this_thread::yield();
  }
  loop.run();
  CHECK_FALSE(followed);
}

TEST_CASE("a question to a server that does not answer ends with a stop request") {
  asio::io_context loop;
  asio::ip::tcp::acceptor silent(loop, {asio::ip::make_address("127.0.0.1"), 0});
  std::stop_source stop;
  std::jthread stopper([&] {
    silent.accept();
    stop.request_stop();
  });
  const ServerAddress server{.host = "127.0.0.1", .port = silent.local_endpoint().port(), .stop = stop.get_token()};
  CHECK_THROWS_AS(ask_for_status(server, "", Deadline::never()), Error);
}
