#include "launcher/doctor/host_facts.h"

#include <algorithm>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>

#include "common/error.h"
#include "common/host_port.h"
#include "common/printable.h"
#include "common/unique_fd.h"
#include "common/version.h"
#include "launcher/cli/device_count.h"

namespace ddprun::doctor {
namespace {

namespace json = boost::json;

constexpr std::uint16_t rendezvous_port = 29400;

// Returns empty text for a family other than IPv4 and IPv6.
std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  return text;
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

std::vector<std::string> resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(first, ::freeaddrinfo);
  std::vector<std::string> found;
  for (const auto* entry = first; entry; entry = entry->ai_next) add_once(found, address_text(entry->ai_addr));
  return found;
}

// Lists IPv4 before IPv6, without addresses that are valid only on one link.
std::vector<std::string> interface_addresses(const Environment& environment) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<std::string> found;
  std::istringstream words(environment.get("SSH_CONNECTION").value_or(""));  // "client port server port"
  std::string client, port, server;
  if (words >> client >> port >> server) add_once(found, server);
  for (const int family : {AF_INET, AF_INET6})
    for (const auto* entry = first; entry; entry = entry->ifa_next) {
      if (!entry->ifa_addr || entry->ifa_addr->sa_family != family || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      const auto text = address_text(entry->ifa_addr);
      if (!text.starts_with("fe80")) add_once(found, text);
    }
  return found;
}

bool can_listen_at(std::uint16_t port) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0 &&
         ::listen(socket.get(), 1) == 0;
}

// The library need not be loaded: the dynamic loader reports whether it would find it.
bool is_installed(const char* library) {
  void* handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle) ::dlclose(handle);
  return handle != nullptr;
}

std::vector<std::string> installed_libraries() {
  constexpr std::pair<const char*, const char*> known[] = {{"NCCL", "libnccl.so.2"},
                                                           {"CUDA driver", "libcuda.so.1"},
                                                           {"Open MPI", "libmpi.so.40"},
                                                           {"MPICH", "libmpich.so.12"}};
  std::vector<std::string> found;
  for (const auto& [name, library] : known)
    if (is_installed(library)) found.emplace_back(name);
  return found;
}

}  // namespace

HostFacts collect_facts(const Environment& environment) {
  HostFacts facts{.name = local_host_name(),
                  .name_addresses = resolve(local_host_name()),
                  .addresses = interface_addresses(environment),
                  .version = std::string(project_version()),
                  .cpus = usable_cpus(),
                  .rendezvous_port_free = can_listen_at(rendezvous_port),
                  .gpus = visible_gpus(environment),
                  .libraries = installed_libraries()};
  facts.memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0) {
    facts.shared_memory = shared.f_blocks * shared.f_frsize;
    facts.shared_memory_free = shared.f_bavail * shared.f_frsize;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.descriptors = limit.rlim_max;
  return facts;
}

std::string to_json(const HostFacts& facts) {
  return valid_json(json::serialize(json::object{{"name", facts.name},
                                                 {"name_addresses", json::value_from(facts.name_addresses)},
                                                 {"addresses", json::value_from(facts.addresses)},
                                                 {"version", facts.version},
                                                 {"cpus", facts.cpus},
                                                 {"memory", facts.memory},
                                                 {"shared_memory", facts.shared_memory},
                                                 {"shared_memory_free", facts.shared_memory_free},
                                                 {"descriptors", facts.descriptors},
                                                 {"rendezvous_port_free", facts.rendezvous_port_free},
                                                 {"gpus", facts.gpus},
                                                 {"libraries", json::value_from(facts.libraries)}}));
}

HostFacts facts_from_json(const std::string& text) {
  using Texts = std::vector<std::string>;
  try {
    const auto document = json::parse(text).as_object();
    return {.name = json::value_to<std::string>(document.at("name")),
            .name_addresses = json::value_to<Texts>(document.at("name_addresses")),
            .addresses = json::value_to<Texts>(document.at("addresses")),
            .version = json::value_to<std::string>(document.at("version")),
            .cpus = document.at("cpus").to_number<int>(),
            .memory = document.at("memory").to_number<std::uint64_t>(),
            .shared_memory = document.at("shared_memory").to_number<std::uint64_t>(),
            .shared_memory_free = document.at("shared_memory_free").to_number<std::uint64_t>(),
            .descriptors = document.at("descriptors").to_number<std::uint64_t>(),
            .rendezvous_port_free = document.at("rendezvous_port_free").as_bool(),
            .gpus = document.at("gpus").to_number<int>(),
            .libraries = json::value_to<Texts>(document.at("libraries"))};
  } catch (const std::exception& e) {
    throw make_error(Errc::protocol, "'{}' does not describe a host: {}", printable(text), e.what());
  }
}

}  // namespace ddprun::doctor
