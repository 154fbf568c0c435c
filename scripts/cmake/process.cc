// The one translation unit that holds the compiled part of Boost.Process v2: apart from Asio's, as only what starts
// processes needs the library of file names under it.
#include <boost/asio.hpp>
#include <boost/process/v2/src.hpp>
