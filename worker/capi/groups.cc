#include <chrono>
#include <memory>
#include <new>
#include <utility>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/capi/group_config.h"
#include "worker/capi/handles.h"
#include "worker/comm/bootstrap/local_address.h"
#include "worker/comm/registry/backends.h"

using ddprun::capi::guarded;
using ddprun::capi::text_of;

namespace {

ddprun::GroupOptions group_options(const ddprun_group_options& from) {
  ddprun::GroupOptions to{.rank = from.rank,
                          .size = from.size,
                          .prefix = text_of(from.prefix, "group/0/"),
                          .config = ddprun::capi::group_config(from)};
  if (from.store_rank >= 0) to.store_host = from.store_rank;

  const auto host = text_of(from.store_host, "127.0.0.1");
  const auto port = from.store_port;
  if (to.config.local_address.empty() && from.size > 1)
    to.config.local_address = ddprun::comm::local_address_towards(host, port);
  to.beside_store = from.size > 1 && ddprun::comm::is_this_host(host, port);
  const auto timeout = to.config.timeout;
  const auto grace = ddprun::comm::store_timeout_of(to);
  to.connect_store = [host, port, timeout, grace] {
    return std::make_shared<ddprun::TcpStore>(ddprun::TcpStoreOptions{.host = host, .port = port, .grace = grace},
                                              ddprun::comm::deadline_after(timeout));
  };
  return to;
}

}  // namespace

int32_t ddprun_abi_version(void) {
  return DDPRUN_ABI_VERSION;
}

ddprun_store_server* ddprun_store_serve(const char* host, uint16_t port, ddprun_error* error) {
  ddprun_store_server* server = nullptr;
  guarded(error, [&] { server = new ddprun_store_server{ddprun::StoreServerThread({.host = host, .port = port})}; });
  return server;
}
uint16_t ddprun_store_port(const ddprun_store_server* server) {
  return server->server.port();
}
int32_t ddprun_store_announce_end(ddprun_store_server* server, int64_t timeout_ms) {
  if (!std::exchange(server->ending, true)) server->server.announce_end();
  return server->server.await_end_known(ddprun::Deadline::in(std::chrono::milliseconds(timeout_ms)));
}
int32_t ddprun_store_drain(ddprun_store_server* server, int64_t timeout_ms) {
  return server->server.await_unused(ddprun::Deadline::in(std::chrono::milliseconds(timeout_ms)));
}
void ddprun_store_free(ddprun_store_server* server) {
  delete server;
}
int32_t ddprun_address_towards(const char* host, uint16_t port, char* address, size_t bytes, ddprun_error* error) {
  return guarded(error, [&] {
    auto found = ddprun::comm::local_address_towards(host, port);
    if (ddprun::comm::is_loopback(found)) found.clear();
    if (found.size() >= bytes) throw ddprun::make_error(ddprun::Errc::usage, "no space for the address {}", found);
    found.copy(address, found.size());
    address[found.size()] = '\0';
  });
}

ddprun_group* ddprun_group_join(const ddprun_group_options* options, ddprun_error* error) {
  ddprun_group* group = nullptr;
  guarded(error, [&] {
    group = new ddprun_group{ddprun::comm::make_group(text_of(options->backend, "auto"), group_options(*options))};
  });
  return group;
}
void ddprun_group_free(ddprun_group* group) {
  delete group;
}

int32_t ddprun_group_rank(const ddprun_group* group) {
  return group->group->rank();
}
int32_t ddprun_group_size(const ddprun_group* group) {
  return group->group->size();
}
const char* ddprun_group_backend(const ddprun_group* group) {
  return group->group->backend().data();
}
uint64_t ddprun_group_bytes_sent(const ddprun_group* group) {
  return group->group->bytes_sent();
}
void ddprun_group_abort(ddprun_group* group, const char* reason) {
  group->group->abort(text_of(reason));
}
int32_t ddprun_group_failure(const ddprun_group* group, ddprun_error* error) {
  return guarded(error, [&] {
    if (const auto failure = group->group->failure()) throw ddprun::Error(*failure);
  });
}

ddprun_memory* ddprun_memory_allocate(ddprun_group* group, size_t bytes, ddprun_error* error) {
  ddprun_memory* memory = nullptr;
  guarded(error, [&] { memory = new ddprun_memory{group->group->allocate(bytes)}; });
  return memory;
}
void* ddprun_memory_data(const ddprun_memory* memory) {
  return memory->buffer.data();
}
void ddprun_memory_free(ddprun_memory* memory) {
  delete memory;
}
