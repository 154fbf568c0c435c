// The one translation unit that holds the compiled part of Boost.Asio and Boost.Process v2.
#include <boost/asio/impl/src.hpp>
#include <boost/process/v2/src.hpp>
