#include "tests/contract/store_contract.h"

#include "rendezvous/store/file_store.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/prefix_store.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

StoreUnderTest memory_store() {
  auto first = std::make_shared<MemoryStore>();
  return {.connect = [first] { return first->another_client(); }};
}

StoreUnderTest file_store() {
  auto dir = std::make_shared<TempDir>();
  return {.connect = [dir] { return std::make_unique<FileStore>(*dir / "store"); }, .keeps_wills = false};
}

StoreUnderTest tcp_store() {
  auto server = std::make_shared<StoreServerThread>(StoreServerOptions{.host = "127.0.0.1"});
  return {.connect =
              [server] {
                return std::make_unique<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = server->port()},
                                                  Deadline::in(std::chrono::seconds(20)));
              },
          .refuses_by_closing = true};
}

StoreUnderTest prefixed(StoreUnderTest store) {
  store.connect = [below = store.connect] {
    return std::make_unique<PrefixStore>("job/7", std::shared_ptr<Store>(below()));
  };
  return store;
}

}  // namespace

TEST_CASE("the memory store fulfils the contract") {
  check_store_contract(memory_store);
}
TEST_CASE("the file store fulfils the contract") {
  check_store_contract(file_store);
}
TEST_CASE("the TCP store fulfils the contract") {
  check_store_contract(tcp_store);
}
TEST_CASE("a prefixed memory store fulfils the contract") {
  check_store_contract([] { return prefixed(memory_store()); });
}
TEST_CASE("a prefixed file store fulfils the contract") {
  check_store_contract([] { return prefixed(file_store()); });
}
TEST_CASE("a prefixed TCP store fulfils the contract") {
  check_store_contract([] { return prefixed(tcp_store()); });
}

TEST_CASE("prefixes nest, and each sees only its own keys") {
  const auto below = std::make_shared<MemoryStore>();
  const auto outer = std::make_shared<PrefixStore>("a", below);
  PrefixStore inner("b/", outer);
  const auto soon = Deadline::in(std::chrono::seconds(20));
  inner.set("/k", "v", soon);
  outer->set("other", "", soon);
  CHECK(below->get("a/b///k", soon) == "v");
  CHECK(inner.list_keys(soon) == std::vector<std::string>{"/k"});
  CHECK(outer->list_keys(soon).size() == 2);
}
