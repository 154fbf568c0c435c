// A worker for process tests that executes its arguments from left to right:
//   if-rank=N / if-attempt=N / if-replacement=N / end-if
//                                       the verbs between run only for this RANK / TORCHELASTIC_RESTART_COUNT /
//                                       DDPRUN_RECOVERY
//   out=TEXT err=TEXT                   writes TEXT; \n and \r are escapes
//   rank=TEXT                           writes "TEXT RANK of WORLD_SIZE" as a line
//   env                                 prints the environment, sorted
//   terminal  descriptors               prints which streams are terminals, of what size; its open descriptors
//   ignore=N  answer=N                  ignores signal N; answers it with "got N" and exit code 0
//   fork=plain|setsid|stubborn          a child that sleeps; in its own session; which also ignores SIGTERM
//   sleep-in-kernel                     waits for a child in uninterruptible sleep (state D), which never ends
//   cat                                 copies its standard input to its standard output
//   touch=PATH  wait-file=PATH          creates a file; waits until it exists
//   eat=MIB                             allocates memory and writes to every page of it
//   error-file=TEXT                     writes TEXT to TORCHELASTIC_ERROR_FILE
//   timer=SCOPE  timer-of=PID           sets an expired watchdog timer for this process; for another one
//   raise=N  exit=N  pause  flood       raises a signal; exits; sleeps; writes lines without end
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      const char c = text[++i];
      result += c == 'n' ? '\n' : c == 'r' ? '\r' : c;
    } else {
      result += text[i];
    }
  }
  return result;
}

void write_text(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) < 0) std::_Exit(90);
}

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

void fork_child(const std::string& kind) {
  if (::fork() != 0) return;
  if (kind != "plain") ::setsid();
  if (kind == "stubborn") std::signal(SIGTERM, SIG_IGN);
  sleep_for_ever();
}

// The parent of a vfork() sleeps in state D until the child has executed a program or ended.
void sleep_in_kernel() {
  if (::vfork() == 0)
    for (;;) ::pause();
}

void copy_input() {
  char block[4096];
  for (ssize_t got = 0; (got = ::read(0, block, sizeof(block))) > 0;)
    write_text(1, {block, static_cast<std::size_t>(got)});
}

void print_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.emplace_back(*entry);
  std::sort(entries.begin(), entries.end());
  std::string text;
  for (const auto& entry : entries) text += entry + "\n";
  write_text(1, text);
}

std::string size_of_terminal(int fd) {
  winsize size{};
  if (::isatty(fd) != 1 || ::ioctl(fd, TIOCGWINSZ, &size) != 0) return "none";
  return std::to_string(size.ws_col) + "x" + std::to_string(size.ws_row);
}

void print_terminal() {
  const int controlling = ::open("/dev/tty", O_RDWR | O_CLOEXEC);
  write_text(1, "stdout " + size_of_terminal(1) + ", stderr " + size_of_terminal(2) + ", " +
                    (controlling < 0 ? "no" : "a") + " controlling terminal\n");
  if (controlling >= 0) ::close(controlling);
}

void print_descriptors() {
  std::string text = "descriptors";
  for (int fd = 0; fd < 1024; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) text += " " + std::to_string(fd);
  write_text(1, text + "\n");
}

void answer(int number) {
  const std::string text = "got " + std::to_string(number) + "\n";
  write_text(1, text);
  std::_Exit(0);
}

void reset_and_raise(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void wait_for_file(const std::string& path) {
  while (::access(path.c_str(), F_OK) != 0) ::usleep(2000);
}

void eat(std::size_t mebibytes) {
  constexpr std::size_t block = 1 << 20;
  for (std::size_t i = 0; i < mebibytes; ++i) {
    auto* bytes = static_cast<volatile char*>(std::malloc(block));
    if (!bytes) std::_Exit(91);
    for (std::size_t at = 0; at < block; at += 4096) bytes[at] = 1;
  }
}

void expired_timer(const std::string& pid, const std::string& scope) {
  std::ofstream(variable("TORCHELASTIC_TIMER_FILE")) << "{\"version\": 1, \"pid\": " << pid << ", \"scope_id\": \""
                                                     << scope << "\", \"expiration_time\": 1.5, \"signal\": 9}\n";
}

// Returns whether the following verbs run.
bool run(const std::string& verb, const std::string& value) {
  if (verb == "if-rank") return variable("RANK") == value;
  if (verb == "if-attempt") return variable("TORCHELASTIC_RESTART_COUNT") == value;
  if (verb == "if-replacement") return variable("DDPRUN_RECOVERY") == value;
  if (verb == "out") write_text(1, unescaped(value));
  if (verb == "rank") write_text(1, value + " " + variable("RANK") + " of " + variable("WORLD_SIZE") + "\n");
  if (verb == "err") write_text(2, unescaped(value));
  if (verb == "env") print_environment();
  if (verb == "terminal") print_terminal();
  if (verb == "descriptors") print_descriptors();
  if (verb == "ignore") std::signal(std::stoi(value), SIG_IGN);
  if (verb == "answer") std::signal(std::stoi(value), answer);
  if (verb == "fork") fork_child(value);
  if (verb == "sleep-in-kernel") sleep_in_kernel();
  if (verb == "cat") copy_input();
  if (verb == "touch") std::ofstream(value).put('\n');
  if (verb == "wait-file") wait_for_file(value);
  if (verb == "eat") eat(std::stoul(value));
  if (verb == "error-file") std::ofstream(variable("TORCHELASTIC_ERROR_FILE")) << value;
  if (verb == "timer") expired_timer(std::to_string(::getpid()), value);
  if (verb == "timer-of") expired_timer(value, "foreign");
  if (verb == "raise") reset_and_raise(std::stoi(value));  // SIGSTOP is 19
  if (verb == "exit") std::_Exit(std::stoi(value));
  if (verb == "pause") sleep_for_ever();
  while (verb == "flood") write_text(1, std::string(1000, 'x') + "\n");
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  bool active = true;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = argument.find('=');
    const auto verb = argument.substr(0, equals);
    if (verb == "end-if")
      active = true;
    else if (active)
      active = run(verb, equals == std::string::npos ? "" : argument.substr(equals + 1));
  }
}
