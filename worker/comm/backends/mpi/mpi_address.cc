#include "worker/comm/backends/mpi/mpi_address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <bit>
#include <sstream>

#include "worker/comm/backends/mpi/mpi_library.h"
#include "worker/comm/bootstrap/local_address.h"

namespace ddprun::comm {
namespace {

std::vector<std::string> own_addresses(const std::string& interface) {
  if (!interface.empty()) return {numeric_address(interface)};
  std::vector<std::string> addresses;
  for (const auto& each : network_interfaces())
    if (each.up && !each.address.empty() && !is_loopback(each.address)) addresses.push_back(each.address);
  if (addresses.empty()) addresses.emplace_back("127.0.0.1");
  return addresses;
}

int common_bits(const std::string& one, const std::string& other) {
  for (const int family : {AF_INET, AF_INET6}) {
    std::array<unsigned char, 16> a{}, b{};
    if (::inet_pton(family, one.c_str(), a.data()) != 1 || ::inet_pton(family, other.c_str(), b.data()) != 1) continue;
    const std::size_t bytes = family == AF_INET ? 4 : 16;
    std::size_t at = 0;
    while (at < bytes && a[at] == b[at]) ++at;
    const int within = at < bytes ? std::countl_zero(static_cast<unsigned char>(a[at] ^ b[at])) : 0;
    return static_cast<int>(8 * at) + within;
  }
  return -1;
}

}  // namespace

std::string nearest_address(const std::vector<std::string>& others, const std::vector<std::string>& own) {
  const auto nearness = [&](const std::string& address) {
    int most = -1;
    for (const auto& each : own) most = std::max(most, common_bits(address, each));
    return most;
  };
  return *std::max_element(others.begin(), others.end(),
                           [&](const auto& a, const auto& b) { return nearness(a) < nearness(b); });
}

std::string address_of_rank_zero(const std::string& interface, std::chrono::milliseconds bound) {
  auto& library = MpiLibrary::instance(bound);
  const auto own = own_addresses(interface);
  std::array<char, 2048> text{};
  if (library.rank() == 0) {
    std::string all;
    for (const auto& each : own) all += each + ' ';
    all.copy(text.data(), text.size() - 1);
  }
  library.broadcast_in_world(text.data(), static_cast<int>(text.size()), 0);
  std::istringstream words(text.data());
  std::vector<std::string> others;
  for (std::string word; words >> word;) others.push_back(word);
  return nearest_address(others, own);
}

}  // namespace ddprun::comm
