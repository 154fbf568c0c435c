// The distribution's static Boost.JSON is not position-independent; this copy of it is.
#include <boost/json/src.hpp>
