// The one translation unit that holds the compiled part of Boost.Asio.
#include <boost/asio/impl/src.hpp>
