#include "tests/unit/cuda/headers/facts.h"

#include <cstddef>
#include <typeinfo>
#include <utility>

#include HEADER

namespace ddprun::testing {

Facts FACTS() {
  return {
#define FUNCTION(function) {#function, typeid(decltype(function)).name()},
#define VALUE(name) {#name, std::to_string(static_cast<long long>(name))},
#define SIZE(type) {#type, std::to_string(sizeof(type))},
#define FIELD(type, field) \
  {#type "::" #field,      \
   std::to_string(offsetof(type, field)) + " " + typeid(decltype(std::declval<type&>().field)).name()},
#include DECLARATIONS
  };
}

}  // namespace ddprun::testing
