#include "worker/checkpoint/unique_keys.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>

#include "common/error.h"
#include "common/printable.h"

namespace ddprun::checkpoint {
namespace {

using ErrorCode = boost::json::error_code;
using Text = boost::json::string_view;

// Takes the parser's events, of which it needs only the names in objects.
class KeyCollector {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  const std::optional<std::string>& duplicate() const { return duplicate_; }

  bool on_object_begin(ErrorCode&) {
    objects_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, ErrorCode&) {
    objects_.pop_back();
    return true;
  }
  bool on_key_part(Text text, std::size_t, ErrorCode&) {
    key_ += std::string_view(text);
    return true;
  }
  bool on_key(Text text, std::size_t, ErrorCode&) {
    key_ += std::string_view(text);
    if (!objects_.back().insert(key_).second && !duplicate_) duplicate_ = key_;
    key_.clear();
    return true;
  }

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_array_begin(ErrorCode&) { return true; }
  bool on_array_end(std::size_t, ErrorCode&) { return true; }
  bool on_string_part(Text, std::size_t, ErrorCode&) { return true; }
  bool on_string(Text, std::size_t, ErrorCode&) { return true; }
  bool on_number_part(Text, ErrorCode&) { return true; }
  bool on_int64(std::int64_t, Text, ErrorCode&) { return true; }
  bool on_uint64(std::uint64_t, Text, ErrorCode&) { return true; }
  bool on_double(double, Text, ErrorCode&) { return true; }
  bool on_bool(bool, ErrorCode&) { return true; }
  bool on_null(ErrorCode&) { return true; }
  bool on_comment_part(Text, ErrorCode&) { return true; }
  bool on_comment(Text, ErrorCode&) { return true; }

 private:
  std::vector<std::set<std::string>> objects_;  // those that are open, the outermost first
  std::string key_;
  std::optional<std::string> duplicate_;
};

}  // namespace

void check_unique_keys(std::string_view json, const std::string& source) {
  boost::json::basic_parser<KeyCollector> parser{boost::json::parse_options()};
  ErrorCode status;
  parser.write_some(false, json.data(), json.size(), status);
  if (const auto& name = parser.handler().duplicate())
    throw make_error(Errc::io, "{}: the name '{}' is there twice in one object", source, printable(*name));
}

}  // namespace ddprun::checkpoint
