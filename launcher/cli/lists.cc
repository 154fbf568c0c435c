#include "launcher/cli/lists.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>

#include "common/error.h"

namespace ddprun {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const auto comma = text.find(',');
    items.push_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return items;
}

int signal_number(std::string_view name) {
  for (int number = 1; number < NSIG; ++number) {
    const char* known = ::sigabbrev_np(number);
    if (known && name == std::string("SIG") + known) return number;
  }
  return 0;
}

const char* why_not_caught(int number) {
  switch (number) {
    case SIGKILL:
    case SIGSTOP:
      return "no process can catch it";
    case SIGCHLD:
      return "it tells ddprun that a worker has exited";
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS:
      return "it reports a fault of ddprun itself";
    default:
      return nullptr;
  }
}

}  // namespace

std::set<int> parse_local_ranks(std::string_view text, std::string_view option) {
  std::set<int> ranks;
  for (const auto item : split(text)) {
    int rank = 0;
    const auto word = trimmed(item);
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), rank);
    if (word.empty() || status != std::errc{} || end != word.data() + word.size() || rank < 0)
      throw make_error(Errc::usage, "--{} = {}: expected local ranks, RANK[,RANK...]", option, text);
    ranks.insert(rank);
  }
  return ranks;
}

std::vector<std::string> parse_texts(std::string_view text) {
  std::vector<std::string> texts(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      texts.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      texts.back() += ',';
      ++i;
    } else {
      texts.emplace_back();
    }
  }
  std::erase(texts, "");
  return texts;
}

int parse_signal(std::string_view text, std::string_view option) {
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size()) {
    number = signal_number(text);
    if (number == 0) number = signal_number("SIG" + std::string(text));
  }
  if (number < 1 || number >= NSIG)
    throw make_error(Errc::usage, "--{} = {}: expected the name or the number of a signal, as USR1", option, text);
  return number;
}

std::vector<int> parse_signals(std::string_view text, std::string_view option) {
  std::vector<int> numbers;
  for (const auto item : split(text)) {
    const auto name = trimmed(item);
    const int number = signal_number(name);
    if (number == 0)
      throw make_error(Errc::usage, "--{} = {}: '{}' is not a signal; expected names like SIGTERM,SIGINT", option, text,
                       name);
    if (const char* why = why_not_caught(number))
      throw make_error(Errc::usage, "--{} = {}: {} cannot be handled: {}", option, text, name, why);
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace ddprun
