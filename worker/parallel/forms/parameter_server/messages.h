#pragma once

#include <cstdint>
#include <vector>

#include "worker/comm/span.h"
#include "worker/comm/work.h"

// The messages between workers and servers of parameters, by tag. Messages of one tag between two ranks arrive in
// order. Constants and values; finish() may be called by any thread.
namespace ddprun::parameter_server {

// The kind of a message to a server. A gradient follows its request.
enum class Request : std::int64_t {
  read,      // asks for the parameters of the server's range
  gradient,  // brings a gradient
  leave,     // nothing more in this round
};
// A message to a worker is a ticket, the number of the update that it is to compute, and the parameters after it; or
// no_ticket without parameters.
inline constexpr std::int64_t no_ticket = -1;

inline constexpr int request_tag = 0;
inline constexpr int gradient_tag = 1;
inline constexpr int ticket_tag = 2;
inline constexpr int parameters_tag = 3;

// Waits until the memory of these operations is the caller's again,
// even if they failed: it throws nothing.
void finish(const std::vector<WorkPtr>& works);

inline Span span_of(std::int64_t& number) {
  return {&number, 1, DType::int64};
}

}  // namespace ddprun::parameter_server
