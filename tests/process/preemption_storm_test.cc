// oneDNN's generated code uses the stack pointer for its data: the frame of a signal handler on a thread that executes
// that code overwrites the heap, which glibc detects at a later free(). This test sends 100,000 preemption requests
// while the thread executes only such calls.
#include <atomic>
#include <csignal>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dnnl.h>

#include "common/deadline.h"
#include "common/environment.h"
#include "worker/trainer/preemption.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

// The number of requests: 100,000 unless the environment sets it.
std::int64_t wanted_requests() {
  const auto value = Environment::capture().get("DDPRUN_TEST_SIGNALS");
  return value ? std::stoll(*value) : 100'000;
}

struct Product {
  char transpose_b;  // 'N' or 'T'
  std::int64_t rows, columns, inner;
};
// Which kernels move the stack pointer depends on the processor: with AVX-512 those of a small CNN's linear layers do,
// with AVX2 those of larger products.
constexpr Product products[] = {{'T', 32, 50, 320}, {'T', 32, 10, 50}, {'N', 50, 320, 32}, {'N', 256, 256, 256}};

// op(a) op(b) of small whole numbers, so that every order of its sums gives the same bits. The result has new memory
// each time: a handler's frame would overwrite the heap.
class Multiplication {
 public:
  explicit Multiplication(const Product& product)
      : product_(product),
        a_(numbers(product.rows * product.inner)),
        b_(numbers(product.inner * product.columns)),
        expected_(result()) {}

  bool repeats() const { return result() == expected_; }

 private:
  static std::vector<float> numbers(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
    return values;
  }
  std::vector<float> result() const {
    const auto& [transpose, rows, columns, inner] = product_;
    std::vector<float> out(static_cast<std::size_t>(rows * columns));
    const auto ldb = transpose == 'T' ? inner : columns;
    REQUIRE(dnnl_sgemm('N', transpose, rows, columns, inner, 1, a_.data(), inner, b_.data(), ldb, 0, out.data(),
                       columns) == dnnl_success);
    return out;
  }

  const Product product_;
  const std::vector<float> a_, b_, expected_;
};

// Sends requests as fast as the kernel accepts them, until this many have been counted: the kernel merges those that
// arrive while one is pending.
void send_until_counted(const trainer::PreemptionListener& listener, std::int64_t requests) {
  const auto deadline = Deadline::in(std::chrono::seconds(100));
  while (listener.requests() < requests && !deadline.expired()) ::kill(::getpid(), SIGUSR1);
}

}  // namespace

TEST_CASE("100,000 preemption requests during oneDNN calls are counted and change no memory") {
  const auto requests = wanted_requests();
  const trainer::PreemptionListener listener("USR1");
  const std::vector<Multiplication> multiplications(std::begin(products), std::end(products));
  std::atomic<bool> done{false};
  std::jthread sender([&] {
    send_until_counted(listener, requests);
    done = true;
  });
  std::int64_t differing = 0;
  while (!done)
    for (const auto& each : multiplications) differing += each.repeats() ? 0 : 1;
  CHECK(differing == 0);
  CHECK(listener.requests() >= requests);
}
