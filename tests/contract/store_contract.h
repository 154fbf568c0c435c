#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ddprun/rendezvous/store/store.h"

namespace ddprun::testing {

// What a store under test offers to the contract.
struct StoreUnderTest {
  // Another client of one and the same store.
  std::function<std::unique_ptr<Store>()> connect;
  bool keeps_wills = true;
  // A server can only answer a bad add() by closing; the others refuse it and live on.
  bool refuses_by_closing = false;
};

// The contract of rendezvous/store/store.h, for every implementation: call it from one TEST_CASE per store. make()
// gives an empty store for each section.
void check_store_contract(const std::function<StoreUnderTest()>& make);

}  // namespace ddprun::testing
