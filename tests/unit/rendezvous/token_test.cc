// Tokens in files and in descriptors.
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "rendezvous/trust/token_descriptor.h"
#include "rendezvous/trust/token_file.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string problem_of(const fs::path& file) {
  try {
    read_token_file(file);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  return "";
}

struct Fixture {
  ddprun::testing::TempDir folder;
  fs::path file = folder.path() / "token";

  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(file) << text;
    REQUIRE(::chmod(file.c_str(), mode) == 0);
  }
};

const std::string digits(64, 'a');

}  // namespace

TEST_CASE_METHOD(Fixture, "a token file is made with mode 600 whatever the umask, read, and removed") {
  const auto token = Secret::random();
  const auto mask = ::umask(0);
  {
    const TokenFile made(file, token);
    ::umask(mask);
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0600);
    CHECK(equal_in_constant_time(read_token_file(file).bytes(), token.bytes()));
    REQUIRE(find_token_file(file));
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
    CHECK_THROWS_AS(TokenFile(file, token), Error);
    CHECK(fs::exists(file));
    CHECK(text_of(file).size() == 65);
  }
  CHECK_FALSE(fs::exists(file));
  CHECK_FALSE(find_token_file(file));
}

TEST_CASE_METHOD(Fixture, "a token file does not follow a link that somebody has put there") {
  fs::create_symlink(folder.path() / "elsewhere", file);
  CHECK_THROWS_AS(TokenFile(file, Secret::random()), Error);
  CHECK_FALSE(fs::exists(folder.path() / "elsewhere"));
}

TEST_CASE_METHOD(Fixture, "a token file that others may read or change is refused") {
  for (const mode_t mode : {0640, 0604, 0660, 0602, 0700, 0610}) {
    INFO(mode);
    write(digits, mode);
    CHECK(problem_of(file).find("chmod 600") != std::string::npos);
  }
  for (const mode_t mode : {0600, 0400}) {
    write(digits + "\n", mode);
    CHECK(problem_of(file).empty());
    fs::remove(file);
  }
}

TEST_CASE_METHOD(Fixture, "a token file of another user, and what is no file, is refused") {
  CHECK(problem_of(file).find("No such file") != std::string::npos);
  CHECK(problem_of(folder.path()).find("regular file") != std::string::npos);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK(problem_of(file).find("regular file") != std::string::npos);
  fs::remove(file);
  if (::geteuid() != 0) return;
  write(digits);
  REQUIRE(::chown(file.c_str(), 65533, 65533) == 0);
  CHECK(problem_of(file).find("another user") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "a token file with anything else in it is refused without being repeated") {
  for (const auto& text : {std::string(), digits + "\n\n", digits + "b", digits.substr(1), "x" + digits.substr(1)}) {
    INFO(text);
    write(text);
    const auto problem = problem_of(file);
    CHECK(problem.find("64 hexadecimal digits") != std::string::npos);
    CHECK(problem.find("aaaaaaaa") == std::string::npos);
  }
}

TEST_CASE("a child reads the token from a descriptor any number of times, and cannot change it") {
  const auto transport = GENERATE(Credentials::Transport::tls, Credentials::Transport::clear);
  const Credentials credentials(Secret::random(), "job", transport);
  const auto fd = make_token_descriptor(credentials);
  for (int i = 0; i < 2; ++i) {
    const auto read = read_token_descriptor(fd.get(), "job");
    REQUIRE(read);
    CHECK(equal_in_constant_time(read->token().bytes(), credentials.token().bytes()));
    CHECK(read->transport() == transport);
    CHECK(read->job() == "job");
  }
  CHECK(::pwrite(fd.get(), "x", 1, 0) < 0);
  CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a token is read from a memory file with more seals, and from none with fewer") {
  const auto text = "ddprun token 1 tls   " + digits;
  constexpr int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const auto sealed = [&](int seals) {
    UniqueFd fd(::memfd_create("token", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
  };
  CHECK(read_token_descriptor(sealed(needed | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL).get(), "job"));
  CHECK_FALSE(read_token_descriptor(sealed(needed).get(), "job"));
  CHECK_FALSE(read_token_descriptor(sealed(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW).get(), "job"));
}

TEST_CASE_METHOD(Fixture, "any other descriptor has no token") {
  CHECK_FALSE(read_token_descriptor(-1, "job"));
  CHECK_FALSE(read_token_descriptor(STDERR_FILENO, "job"));
  write("ddprun token 1 tls   " + digits);
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  CHECK_FALSE(read_token_descriptor(fd.get(), "job"));
}
