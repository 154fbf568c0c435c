#pragma once

#include <functional>
#include <thread>

namespace ddprun::checkpoint {

// Starts a thread without signals. purpose: what it does, in the error. Throws Errc::io if the system refuses a thread.
std::thread start_helper_thread(const char* purpose, std::function<void()> body);

// Gives the calling thread, and those that it starts, a low priority: a tenth of a busy processor. Training goes before
// it, and its work ends nevertheless. It cannot be raised again.
void take_low_priority();

}  // namespace ddprun::checkpoint
