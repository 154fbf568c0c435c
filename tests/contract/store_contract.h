#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/store/store.h"

namespace ddprun::testing {

// The store under test.
struct StoreUnderTest {
  // Makes another client of the same store.
  std::function<std::unique_ptr<Store>()> connect;
  bool keeps_wills = true;
  // A server can only refuse an invalid add() by closing; other stores throw and stay usable.
  bool refuses_by_closing = false;
};

// The contract of rendezvous/store/store.h for every implementation: call it from one TEST_CASE per store. make()
// returns an empty store for each section.
void check_store_contract(const std::function<StoreUnderTest()>& make);

}  // namespace ddprun::testing
