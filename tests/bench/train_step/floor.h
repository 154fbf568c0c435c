#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ddprun::bench {

// A linear layer's three products in a step (output, gradients of input and weight), that many times.
struct LinearProducts {
  std::int64_t rows, in, out;
  int times = 1;
  bool input_gradient = true;
};

// A square convolution's three products, without the gradient of an input that is data.
struct Convolutions {
  std::int64_t batch, in, out, kernel, stride, padding, size;
  int times = 1;
  bool input_gradient = true;
};

struct Arithmetic {
  std::vector<LinearProducts> linears;
  std::vector<Convolutions> convolutions;
};

// Only the matrix products and convolutions of one step, directly through oneDNN on the calling thread: a training step
// cannot be faster without another algorithm. Convolutions run in the layout and with the algorithm that oneDNN itself
// prefers (convolution_auto: Winograd where that is faster), no operand is reordered.
class ArithmeticFloor {
 public:
  explicit ArithmeticFloor(const Arithmetic& arithmetic);
  ~ArithmeticFloor();
  ArithmeticFloor(const ArithmeticFloor&) = delete;
  ArithmeticFloor& operator=(const ArithmeticFloor&) = delete;

  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddprun::bench
