#pragma once

#include <filesystem>
#include <optional>
#include <utility>

#include "rendezvous/trust/secret.h"

// A token in a file that only its owner can read: 64 hexadecimal digits and a newline.
namespace ddprun {

// Throws Errc::usage if there is no such file, if it is no regular file of this user, if others may read or change it
// (its mode has to be 600 or less), or if it contains anything else.
Secret read_token_file(const std::filesystem::path& file);

// Does what read_token_file() does, but returns nullopt if there is no such file yet. The folder is read first, so that
// a network file system does not answer from its cache.
std::optional<Secret> find_token_file(const std::filesystem::path& file);

// Creates the file with mode 600 and removes it in the destructor, or earlier.
//
// Ownership: owns the file. Threads: not thread-safe. Errors: the constructor throws Errc::io, also if there is such a
// file.
class TokenFile {
 public:
  TokenFile(std::filesystem::path file, const Secret& token);
  // Takes over a file that is there already.
  explicit TokenFile(std::filesystem::path file) : file_(std::move(file)) {}
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  // Removes the file, which nobody needs to read any more.
  void remove();

 private:
  std::filesystem::path file_;  // empty once removed
};

}  // namespace ddprun
