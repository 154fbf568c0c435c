#include "worker/cuda/emulator/fibre.h"

#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#ifdef DDPRUN_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#ifdef DDPRUN_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__
// Saves what a call must preserve on the stack that is left, and restores it from the one that is entered. ucontext's
// function would make two system calls for the signal mask each time.
extern "C" void ddprun_emulator_switch_stack(void** from, void* to);
asm(R"(
  .text
  .globl ddprun_emulator_switch_stack
  .hidden ddprun_emulator_switch_stack
  .type ddprun_emulator_switch_stack, @function
ddprun_emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size ddprun_emulator_switch_stack, .-ddprun_emulator_switch_stack
)");
#endif

namespace ddprun::cuda::emulator {
namespace {

// The fibres of the last switch; one thread of the host uses fibres at a time.
Fibre* entered = nullptr;
Fibre* left = nullptr;

}  // namespace

Fibre::Fibre() {
#ifdef DDPRUN_EMULATOR_TSAN
  sanitizer_fibre_ = __tsan_get_current_fiber();
#endif
}

Fibre::Fibre(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapping = ::mmap(nullptr, stack_bytes + page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  ::mprotect(mapping, page, PROT_NONE);
  mapping_ = static_cast<char*>(mapping);
  stack_ = mapping_ + page;
  static std::size_t made = 0;
  indent_ = made++ % 32 * 128;
#ifdef DDPRUN_EMULATOR_TSAN
  sanitizer_fibre_ = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
  if (mapping_ == nullptr) return;
#ifdef DDPRUN_EMULATOR_TSAN
  __tsan_destroy_fiber(sanitizer_fibre_);
#endif
#ifdef DDPRUN_EMULATOR_ASAN
  __asan_unpoison_memory_region(stack_, stack_bytes_);  // it may be that of a function that was given up in the middle
#endif
  ::munmap(mapping_, static_cast<std::size_t>(stack_ - mapping_) + stack_bytes_);
}

void Fibre::start(void (*function)()) {
  function_ = function;
  prepare();
}

#ifdef __x86_64__
void Fibre::prepare() {
  // The stack holds six registers, and the address at which enter() begins; it is aligned as after a call.
  auto* top = reinterpret_cast<std::uintptr_t*>(stack_ + stack_bytes_ - indent_);
  *--top = 0;
  *--top = reinterpret_cast<std::uintptr_t>(&Fibre::enter);
  for (int i = 0; i < 6; ++i) *--top = 0;
  stack_pointer_ = top;
}

void Fibre::jump(Fibre& other) {
  ddprun_emulator_switch_stack(&stack_pointer_, other.stack_pointer_);
}
#else
void Fibre::prepare() {
  ::getcontext(&context_);
  context_.uc_stack = {stack_, 0, stack_bytes_};
  ::makecontext(&context_, &Fibre::enter, 0);
}

void Fibre::jump(Fibre& other) {
  ::swapcontext(&context_, &other.context_);
}
#endif

void Fibre::enter() {
#ifdef DDPRUN_EMULATOR_ASAN
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (left->mapping_ == nullptr) {
    left->stack_ = static_cast<char*>(const_cast<void*>(bottom));
    left->stack_bytes_ = bytes;
  }
#endif
  entered->function_();
}

void Fibre::arrive() {
#ifdef DDPRUN_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Fibre::switch_to(Fibre& other) {
  left = this;
  entered = &other;
#ifdef DDPRUN_EMULATOR_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, other.stack_, other.stack_bytes_);
#endif
#ifdef DDPRUN_EMULATOR_TSAN
  __tsan_switch_to_fiber(other.sanitizer_fibre_, __tsan_switch_to_fiber_no_sync);
#endif
  jump(other);
  arrive();
}

void Fibre::leave_to(Fibre& other) {
  left = this;
  entered = &other;
#ifdef DDPRUN_EMULATOR_ASAN
  __sanitizer_start_switch_fiber(nullptr, other.stack_, other.stack_bytes_);
#endif
#ifdef DDPRUN_EMULATOR_TSAN
  __tsan_switch_to_fiber(other.sanitizer_fibre_, __tsan_switch_to_fiber_no_sync);
#endif
  jump(other);
}

}  // namespace ddprun::cuda::emulator
