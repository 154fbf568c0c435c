#include "tests/bench/redis.h"

#include <chrono>
#include <cstdio>
#include <initializer_list>
#include <thread>
#include <utility>

#include "common/deadline.h"
#include "common/error.h"
#include "tests/support/free_port.h"

namespace ddprun::bench {
namespace {

using namespace std::chrono_literals;

std::string command(std::initializer_list<std::string> words) {
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto& word : words) text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return text;
}

void wait_until_it_answers(std::uint16_t port) {
  const auto deadline = Deadline::in(10s);
  for (;;) {
    try {
      Load load({.host = "127.0.0.1", .port = port});
      return load.run_once(0, {{.request = command({"PING"})}});
    } catch (const Error&) {
      if (deadline.expired()) throw;
      std::this_thread::sleep_for(10ms);
    }
  }
}

}  // namespace

std::unique_ptr<Redis> Redis::start() {
  const auto path = find_on_path("redis-server");
  if (!path) {
    std::fprintf(stderr, "redis is left out: there is no redis-server on PATH\n");
    return nullptr;
  }
  try {
    const auto port = testing::free_port();  // redis-server cannot choose one itself
    Process process({*path, "--port", std::to_string(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"});
    wait_until_it_answers(port);
    return std::unique_ptr<Redis>(new Redis(std::move(process), port));
  } catch (const Error& e) {
    std::fprintf(stderr, "redis is left out: %s\n", e.what());
    return nullptr;
  }
}

Operation Redis::set(const std::string& key, const std::string& value) {
  return {{.request = command({"SET", key, value})}};
}
Operation Redis::get(const std::string& key, std::size_t value_bytes) {
  const auto head = "$" + std::to_string(value_bytes) + "\r\n";
  return {{.request = command({"GET", key}), .reply_bytes = head.size() + value_bytes + 2}};
}
Operation Redis::add(const std::string& key) {
  return {{.request = command({"INCRBY", key, "1"})}};
}

}  // namespace ddprun::bench
