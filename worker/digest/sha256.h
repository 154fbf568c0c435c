#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// Incremental SHA-256. Movable; one use.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes);
  // Returns 64 lower-case hexadecimal digits. Ends the use of this object.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the version of the library that computes it, such as "3.0.17".
std::string openssl_version();

}  // namespace ddprun
