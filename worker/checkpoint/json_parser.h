#pragma once

#include <string>
#include <string_view>

#include <boost/json.hpp>

namespace ddprun::checkpoint {

// Parses JSON from a file. A number with a fraction or an exponent is the double next to what is written, so one that
// was written with enough digits reads back as it was; Boost.JSON's own parser loses its last bits.
// Throws Errc::io naming source and what is wrong, in words and without the parser's position; also for a name that an
// object has twice.
boost::json::value parse_json(std::string_view text, const std::string& source);

}  // namespace ddprun::checkpoint
