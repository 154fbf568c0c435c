#pragma once

#include <cstddef>
#include <ucontext.h>

namespace ddprun::cuda::emulator {

// A stack of its own for a function that can stop in the middle. The sanitizers learn of each switch; to
// ThreadSanitizer a fibre is a thread, and a switch orders nothing.
class Fibre {
 public:
  Fibre();  // stands for the stack that the calling thread runs on
  explicit Fibre(std::size_t stack_bytes);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // The function begins at the next switch to this fibre; what the fibre did before is given up. It never returns.
  void start(void (*function)());
  // Switches from this fibre, which must be the one that runs, to another.
  void switch_to(Fibre& other);
  // Does the same, but this one will only continue by start().
  void leave_to(Fibre& other);

 private:
  static void enter();
  void prepare();
  void arrive();
  void jump(Fibre& other);

  char* mapping_ = nullptr;  // has an unreadable page below the stack
  char* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  std::size_t indent_ = 0;  // that of the first frame: the stacks' ends would share a few lines of the cache
  void (*function_)() = nullptr;
  void* sanitizer_fibre_ = nullptr;
  void* fake_stack_ = nullptr;
#ifdef __x86_64__
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
};

}  // namespace ddprun::cuda::emulator
