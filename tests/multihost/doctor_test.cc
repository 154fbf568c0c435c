#include <algorithm>
#include <fstream>
#include <regex>
#include <vector>

#include "common/atomic_file.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/netns.h"
#include "tests/support/script_file.h"
#include "tests/support/temp_dir.h"

// ddprun doctor for hosts in network namespaces, each with a host name, an /etc/hosts and a /dev/shm of its own.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class DoctorHosts {
 public:
  explicit DoctorHosts(int count) : hosts_(permitted(count)) {
    for (int i = 0; i < count; ++i) {
      names_ += (i == 0 ? "" : ",") + name(i);
      set_address(i, hosts_.address(i));
      prepare(i, "");
    }
    // This program replaces ssh. The mounts end with the mount namespace.
    write_script(folder_ / "connect", "#!/bin/sh\nexec " + folder_.path().string() + "/$1 \"$2\"\n");
  }

  static std::string name(int host) { return "n" + std::to_string(host); }
  std::string address(int host) const { return hosts_.address(host); }

  // Sets the address that the host's own name resolves to on it.
  void set_address(int host, const std::string& address) const {
    std::ofstream(folder_ / (name(host) + ".hosts")) << "127.0.0.1 localhost\n" << address << " " << name(host) << "\n";
  }

  // A command that prepares the host for the program that follows it.
  void prepare(int host, const std::string& command) const {
    std::string enter;
    for (const auto& word : hosts_.enter(host)) enter += word + " ";
    const auto mount = "mount --bind " + (folder_ / (name(host) + ".hosts")).string() + " /etc/hosts";
    write_script(folder_ / name(host), "#!/bin/sh\nexport RUN=\"$1\"\nexec " + enter +
                                           "unshare --uts --mount sh -ec 'hostname " + name(host) + "; " + mount +
                                           "; " + command + " exec sh -c \"$RUN\"'\n");
  }

  // Sets the bandwidth of the host's link.
  void limit(int host, const std::string& rate) { hosts_.limit(host, rate); }
  // Runs on host 0 as an ip command.
  void ip(int host, const std::string& words) const {
    std::string line;
    for (const auto& word : hosts_.enter(host)) line += word + " ";
    REQUIRE(std::system((line + "ip " + words).c_str()) == 0);
  }

  Child::Result examine(Words options = {}) const {
    options.insert(options.begin(),
                   {DDPRUN_PROGRAM, "doctor", "--hosts=" + names_, "--ssh=" + (folder_ / "connect").string()});
    return Child(options).wait(std::chrono::seconds(60));
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

 private:
  // Skips the test where hosts cannot be created.
  static int permitted(int count) {
    if (const auto why = NetnsHosts::why_not(); !why.empty()) SKIP(why);
    return count;
  }

  TempDir folder_;
  NetnsHosts hosts_;
  std::string names_;
};

}  // namespace

TEST_CASE("ddprun doctor passes healthy hosts and writes a hostfile of them") {
  const DoctorHosts hosts(3);
  const auto result = hosts.examine({"--write_hostfile=" + hosts.file("passed")});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(result.err.empty());
  CHECK_FALSE(contains(result.out, "problem: "));
  CHECK(result.out.ends_with("3 of 3 hosts passed\n"));
  const auto hostfile = lines_of(read_whole_file(hosts.file("passed")));
  REQUIRE(hostfile.size() == 3);
  CHECK(hostfile[2].starts_with("n2 slots="));
}

TEST_CASE("ddprun doctor measures limited links of four hosts within a tenth") {
  DoctorHosts hosts(4);
  for (int i = 0; i < 4; ++i) hosts.limit(i, "50mbit");
  const auto result = hosts.examine();
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  static const std::regex rate("([0-9.]+) Mbit/s");
  std::vector<double> rates;
  for (std::sregex_iterator found(result.out.begin(), result.out.end(), rate), end; found != end; ++found)
    rates.push_back(std::stod((*found)[1]));
  REQUIRE(rates.size() == 12);  // both directions of six links
  std::sort(rates.begin(), rates.end());
  // A busy machine slows a single measurement down; nothing lets it exceed the limit.
  CHECK(rates[6] == Approx(50).epsilon(0.1));
  CHECK(rates.back() < 55);
}

TEST_CASE("ddprun doctor names a broken link, a full /dev/shm, a wrong name and a host that does not answer") {
  const DoctorHosts hosts(5);
  // Packets from host 0 to host 1 go to a card that does not exist, so that nothing answers.
  hosts.ip(0, "neighbour replace " + hosts.address(1) + " lladdr 02:00:00:00:00:99 dev eth0 nud permanent");
  hosts.prepare(2, "mount -t tmpfs -o size=8m tmpfs /dev/shm; head -c 6m /dev/zero > /dev/shm/full;");
  hosts.set_address(3, "10.99.0.1");
  hosts.prepare(4, "echo no route to n4 >&2; exit 255;");
  const auto result = hosts.examine({"--write_hostfile=" + hosts.file("passed")});
  INFO(result.out << result.err);
  CHECK(result.code == 1);
  CHECK(contains(result.out, "problem: n0 to n1: cannot connect to " + hosts.address(1) + ":"));
  CHECK(contains(result.out, ": nothing answers there\n"));
  CHECK(contains(result.out, "problem: n2: /dev/shm has 2 of 8 MiB left, "));
  CHECK(contains(result.out, "problem: n3: its own name, n3, means 10.99.0.1, which is no address of this host (" +
                                 hosts.address(3)));
  CHECK(contains(result.out, "problem: n4: no route to n4\n"));
  CHECK(result.out.ends_with("1 of 5 hosts passed\n"));
  CHECK(read_whole_file(hosts.file("passed")).starts_with("n0 slots="));
}

TEST_CASE("ddprun doctor names the host whose clock is wrong") {
  if (!std::filesystem::exists("/usr/bin/faketime")) SKIP("/usr/bin/faketime is not installed (Debian: faketime)");
  const DoctorHosts hosts(3);
  hosts.prepare(1, "exec faketime -f +30s sh -c \"$RUN\";");
  const auto result = hosts.examine();
  INFO(result.out << result.err);
  CHECK(result.code == 1);
  CHECK(contains(result.out, "problem: n1: its clock is 30.0 s ahead of that of the others: "));
  CHECK(result.out.ends_with("2 of 3 hosts passed\n"));
}
