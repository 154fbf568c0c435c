#include "launcher/hosts/remote_protocol.h"

#include <algorithm>
#include <charconv>

#include "common/error.h"
#include "rendezvous/trust/secret.h"

namespace ddprun {
namespace {

constexpr std::size_t most_texts = 1'000'000;

void put(std::string& body, std::string_view text) {
  body += text;
  body += '\0';
}

void put(std::string& body, const std::vector<std::string>& texts) {
  put(body, std::to_string(texts.size()));
  for (const auto& text : texts) put(body, text);
}

class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  std::string text() {
    const auto end = rest_.find('\0');
    if (end == std::string_view::npos) throw make_error(Errc::protocol, "the launch request is incomplete");
    std::string result(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return result;
  }

  std::vector<std::string> texts() {
    const auto digits = text();
    std::size_t count = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (status != std::errc{} || end != digits.data() + digits.size() || count > most_texts)
      throw make_error(Errc::protocol, "the launch request has '{}' instead of a count", digits);
    std::vector<std::string> result;
    while (result.size() < count) result.push_back(text());
    return result;
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string encode(const LaunchRequest& request) {
  std::string body;
  put(body, request.directory);
  put(body, request.environment);
  put(body, request.arguments);
  std::vector<std::string> options;
  for (const auto& [name, value] : request.options) options.insert(options.end(), {name, value});
  put(body, options);
  body.reserve(body.size() + request.token.size() + 1);  // a string that grows would leave a copy behind
  put(body, request.token);
  const auto size = std::to_string(body.size()) + "\n";
  std::string bytes;
  bytes.reserve(size.size() + body.size());
  bytes += size;
  bytes += body;
  wipe(body);
  return bytes;
}

LaunchRequest decode_request(std::string_view body) {
  Reader reader(body);
  LaunchRequest request;
  request.directory = reader.text();
  request.environment = reader.texts();
  request.arguments = reader.texts();
  const auto options = reader.texts();
  request.token = reader.text();
  for (std::size_t i = 0; i + 1 < options.size(); i += 2) request.options.emplace_back(options[i], options[i + 1]);
  return request;
}

std::string MessageParser::begin(std::string_view connection_id) {
  return "\x01" + std::string(connection_id) + " ";
}

std::string encode_message(std::string_view connection_id, std::string_view text) {
  return MessageParser::begin(connection_id) + std::string(text) + "\n";
}

std::string join_lines(std::string text) {
  std::replace(text.begin(), text.end(), '\n', '\x1e');
  return text;
}

std::string split_lines(std::string text) {
  std::replace(text.begin(), text.end(), '\x1e', '\n');
  return text;
}

void MessageParser::feed(std::string_view bytes, std::string& output, std::vector<std::string>& messages) {
  held_ += bytes;
  for (;;) {
    const auto at = held_.find(mark_.front());
    output.append(held_, 0, at);
    held_.erase(0, std::min(at, held_.size()));
    const auto common = std::min(held_.size(), mark_.size());
    if (held_.compare(0, common, mark_, 0, common) != 0) {
      output += held_.front();
      held_.erase(0, 1);
      continue;
    }
    const auto end = held_.size() < mark_.size() ? std::string::npos : held_.find('\n');
    if (end == std::string::npos) return;
    messages.push_back(held_.substr(mark_.size(), end - mark_.size()));
    held_.erase(0, end + 1);
  }
}

void MessageParser::flush(std::string& output) {
  output += held_;
  held_.clear();
}

}  // namespace ddprun
