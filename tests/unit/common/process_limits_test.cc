#include "common/process_limits.h"

#include <new>
#include <stdexcept>
#include <sys/resource.h>
#include <system_error>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

// Sets the soft limit of address space for a scope, to a value that this process does not reach.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(rlim_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_AS, &previous_) == 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = previous_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;
  ~AddressSpaceLimit() { ::setrlimit(RLIMIT_AS, &previous_); }

 private:
  rlimit previous_{};
};

const std::system_error no_thread(std::make_error_code(std::errc::resource_unavailable_try_again));

}  // namespace

TEST_CASE("a thread that cannot be started is named, with the limit of address space") {
  const AddressSpaceLimit limit(rlim_t{1} << 50);
  CHECK_THAT(exception_text(no_thread), Catch::StartsWith("cannot start a thread: Resource temporarily unavailable"));
  CHECK_THAT(exception_text(no_thread), Catch::Contains("(ulimit -v is 1099511627776 KiB"));
  CHECK_THAT(exception_text(std::bad_alloc()), Catch::StartsWith("cannot allocate memory (ulimit -v is 1099511627776"));
}

TEST_CASE("a limit that is not set is not named") {
  const AddressSpaceLimit limit(RLIM_INFINITY);
  CHECK_THAT(process_limits_text(), !Catch::Contains("ulimit -v"));
}

TEST_CASE("the text of other exceptions is their own") {
  CHECK(exception_text(std::runtime_error("boom")) == "boom");
  CHECK(exception_text(std::system_error(std::make_error_code(std::errc::permission_denied), "x")) ==
        "x: Permission denied");
}
