#include "rendezvous/trust/owner_question.h"

#include <charconv>

#include "common/error.h"

namespace ddprun {
namespace {

constexpr std::size_t max_text = 256;

std::string_view next_word(std::string_view& rest) {
  const auto end = rest.find(' ');
  const auto word = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return word;
}

template <class T>
T required_number(std::string_view word) {
  T value{};
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || status != std::errc{} || end != word.data() + word.size())
    throw make_error(Errc::protocol, "a question about a socket with '{}' instead of a number", word);
  return value;
}

SocketEnds::End next_end(std::string_view& rest) {
  const auto address = next_word(rest);
  return {std::string(address), required_number<std::uint16_t>(next_word(rest))};
}

}  // namespace

std::string encode(const OwnerQuestion& question) {
  const auto& [own, peer] = question.ends;
  return fmt::format("{} {} {} {} {}", question.number, own.address, own.port, peer.address, peer.port);
}

OwnerQuestion decode_owner_question(std::string_view text) {
  if (text.size() > max_text) throw make_error(Errc::protocol, "a question about a socket of {} bytes", text.size());
  OwnerQuestion question;
  question.number = required_number<std::uint64_t>(next_word(text));
  question.ends.own = next_end(text);
  question.ends.peer = next_end(text);
  if (!text.empty()) throw make_error(Errc::protocol, "a question about a socket with more than both ends");
  return question;
}

}  // namespace ddprun
