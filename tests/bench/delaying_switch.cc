#include "tests/bench/delaying_switch.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <map>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <span>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "common/error.h"
#include "tests/support/host_network.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;
using HardwareAddress = std::array<std::byte, ETH_ALEN>;

constexpr std::size_t offload_header = 10;  // sizeof(virtio_net_hdr), whose header file is not C++
constexpr std::size_t largest_frame = offload_header + (1 << 16) + ETH_HLEN;
constexpr int buffer_bytes = 64 << 20;  // of a port's socket
constexpr int most_at_once = 64;        // frames taken from a port before those that are due are sent

void check(bool holds, const std::string& what) {
  if (!holds) throw make_error(Errc::io, "{}: {}", what, errno_text(errno));
}

void set(const UniqueFd& socket, int level, int option, int value) {
  check(::setsockopt(socket.get(), level, option, &value, sizeof value) == 0, "an option of a packet socket");
}

// A socket that gets and sends the frames of an interface of this thread's network namespace, each after the header
// that describes its segmentation and its checksum.
UniqueFd open_port(const std::string& interface) {
  UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check(static_cast<bool>(socket), "a packet socket");
  set(socket, SOL_PACKET, PACKET_VNET_HDR, 1);
  set(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
  set(socket, SOL_SOCKET, SO_RCVBUFFORCE, buffer_bytes);
  set(socket, SOL_SOCKET, SO_SNDBUFFORCE, buffer_bytes);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
  check(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, interface);
  return socket;
}

struct Frame {
  std::array<std::byte, largest_frame> bytes;
  std::size_t size = 0;
  std::size_t port = 0;  // where it came from
  Clock::time_point due;

  HardwareAddress destination() const { return address_at(0); }
  HardwareAddress source() const { return address_at(ETH_ALEN); }

 private:
  HardwareAddress address_at(std::size_t offset) const {
    HardwareAddress address;
    std::memcpy(address.data(), bytes.data() + offload_header + offset, address.size());
    return address;
  }
};

class Forwarder {
 public:
  Forwarder(std::vector<UniqueFd> ports, std::chrono::nanoseconds delay) : ports_(std::move(ports)), delay_(delay) {}

  // Returns when the event is set.
  void run(int end) {
    std::vector<pollfd> ready;
    for (const auto& port : ports_) ready.push_back({port.get(), POLLIN, 0});
    ready.push_back({end, POLLIN, 0});
    for (;;) {
      const auto wait = until_next();
      if (::ppoll(ready.data(), ready.size(), wait ? &*wait : nullptr, nullptr) < 0 && errno != EINTR) return;
      if (ready.back().revents != 0) return;
      for (std::size_t port = 0; port < ports_.size(); ++port)
        if (ready[port].revents != 0) take_frames(port);
      send_due();
    }
  }

 private:
  std::optional<timespec> until_next() const {
    if (held_.empty()) return std::nullopt;
    const auto left = std::max<Clock::duration>(held_.front()->due - Clock::now(), Clock::duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    return timespec{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
  }

  void take_frames(std::size_t port) {
    for (int i = 0; i < most_at_once; ++i) {
      auto frame = free_frame();
      const auto size = ::recv(ports_[port].get(), frame->bytes.data(), frame->bytes.size(), 0);
      if (size < static_cast<ssize_t>(offload_header + ETH_HLEN)) {
        free_.push_back(std::move(frame));
        return;
      }
      frame->size = static_cast<std::size_t>(size);
      frame->port = port;
      frame->due = Clock::now() + delay_;
      port_of_[frame->source()] = port;
      held_.push_back(std::move(frame));
    }
  }

  void send_due() {
    for (const auto now = Clock::now(); !held_.empty() && held_.front()->due <= now; held_.pop_front()) {
      send(*held_.front());
      free_.push_back(std::move(held_.front()));
    }
  }

  // To the port of its destination, or to all others if that is unknown. A frame that a port does not take is lost, as
  // at any switch.
  void send(const Frame& frame) const {
    const auto known = port_of_.find(frame.destination());
    for (std::size_t port = 0; port < ports_.size(); ++port)
      if (known == port_of_.end() ? port != frame.port : port == known->second) [[maybe_unused]]
        const auto sent = ::send(ports_[port].get(), frame.bytes.data(), frame.size, 0);
  }

  std::unique_ptr<Frame> free_frame() {
    if (free_.empty()) return std::make_unique<Frame>();
    auto frame = std::move(free_.back());
    free_.pop_back();
    return frame;
  }

  const std::vector<UniqueFd> ports_;
  const std::chrono::nanoseconds delay_;
  std::map<HardwareAddress, std::size_t> port_of_;
  std::deque<std::unique_ptr<Frame>> held_;  // in the order in which they are due
  std::vector<std::unique_ptr<Frame>> free_;
};

std::vector<UniqueFd> open_ports(testing::NetnsHosts& hosts) {
  const testing::InNetwork in_switch(hosts.switch_network());
  std::vector<UniqueFd> ports;
  for (int host = 0; host < hosts.count(); ++host) {
    hosts.unplug(host);
    ports.push_back(open_port(hosts.cable(host)));
  }
  return ports;
}

}  // namespace

DelayingSwitch::DelayingSwitch(testing::NetnsHosts& hosts, std::chrono::nanoseconds delay)
    : end_(::eventfd(0, EFD_CLOEXEC)) {
  check(static_cast<bool>(end_), "eventfd");
  auto forwarder = std::make_unique<Forwarder>(open_ports(hosts), delay);
  thread_ = std::thread([this, forwarder = std::move(forwarder)] { forwarder->run(end_.get()); });
  const sched_param lowest{.sched_priority = 1};
  ::pthread_setschedparam(thread_.native_handle(), SCHED_FIFO, &lowest);
}

DelayingSwitch::~DelayingSwitch() {
  ::eventfd_write(end_.get(), 1);
  thread_.join();
}

}  // namespace ddprun::bench
