#include "worker/checkpoint/json_parser.h"

#include <charconv>
#include <cstdint>
#include <system_error>

#include <boost/json/basic_parser_impl.hpp>

#include "common/error.h"
#include "worker/checkpoint/unique_keys.h"

namespace ddprun::checkpoint {
namespace {

namespace json = boost::json;
using ErrorCode = json::error_code;
using Text = json::string_view;

// Builds a value of the parser's events, as json::parser does, except for doubles.
class ValueBuilder {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  json::value release() { return values_.release(); }

  bool on_document_begin(ErrorCode&) {
    values_.reset();
    return true;
  }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode&) { return true; }
  bool on_object_end(std::size_t size, ErrorCode&) {
    values_.push_object(size);
    return true;
  }
  bool on_array_begin(ErrorCode&) { return true; }
  bool on_array_end(std::size_t size, ErrorCode&) {
    values_.push_array(size);
    return true;
  }
  bool on_key_part(Text text, std::size_t, ErrorCode&) {
    values_.push_chars(text);
    return true;
  }
  bool on_key(Text text, std::size_t, ErrorCode&) {
    values_.push_key(text);
    return true;
  }
  bool on_string_part(Text text, std::size_t, ErrorCode&) {
    values_.push_chars(text);
    return true;
  }
  bool on_string(Text text, std::size_t, ErrorCode&) {
    values_.push_string(text);
    return true;
  }
  bool on_number_part(Text text, ErrorCode&) {
    number_ += std::string_view(text);
    return true;
  }
  bool on_int64(std::int64_t value, Text, ErrorCode&) {
    number_.clear();
    values_.push_int64(value);
    return true;
  }
  bool on_uint64(std::uint64_t value, Text, ErrorCode&) {
    number_.clear();
    values_.push_uint64(value);
    return true;
  }
  // A value out of range is kept as the parser has it.
  bool on_double(double value, Text text, ErrorCode&) {
    number_ += std::string_view(text);
    double exact = value;
    const auto [end, error] = std::from_chars(number_.data(), number_.data() + number_.size(), exact);
    values_.push_double(error == std::errc() ? exact : value);
    number_.clear();
    return true;
  }
  bool on_bool(bool value, ErrorCode&) {
    values_.push_bool(value);
    return true;
  }
  bool on_null(ErrorCode&) {
    values_.push_null();
    return true;
  }
  bool on_comment_part(Text, ErrorCode&) { return true; }
  bool on_comment(Text, ErrorCode&) { return true; }

 private:
  json::value_stack values_;
  std::string number_;  // the parts of the number being read
};

}  // namespace

json::value parse_json(std::string_view text, const std::string& source) {
  json::basic_parser<ValueBuilder> parser{json::parse_options()};
  ErrorCode status;
  const auto read = parser.write_some(false, text.data(), text.size(), status);
  if (!status && read < text.size()) status = json::error::extra_data;
  if (status == json::error::incomplete)
    throw make_error(Errc::io, "{}: it ends too early, after {} bytes", source, text.size());
  if (status) throw make_error(Errc::io, "{}: it is not valid JSON: {}", source, status.message());
  check_unique_keys(text, source);
  return parser.handler().release();
}

}  // namespace ddprun::checkpoint
