#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace ddprun {

// Passed to Asio's operations in a coroutine: co_await then returns the error code and the result, and throws nothing.
inline constexpr auto awaited = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace ddprun
