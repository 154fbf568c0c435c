#pragma once

namespace ddprun {

// The kind of an error, for callers to branch on; what() is for people.
enum class Errc {
  usage,            // the user's mistake: a flag, a file, a value. Exit code 2.
  io,               // a file or device: missing, damaged, full
  timeout,          // a deadline passed; the message says what was awaited and which peer was missing
  unreachable,      // no connection to an address
  connection_lost,  // an established connection broke
  protocol,         // a peer violated the protocol
  peer_lost,        // another rank or node died, froze or was cut off
  mismatch,         // ranks disagree (operation, size, type, shape)
  aborted,          // stopped on purpose, by this process or a job result
  unsupported,      // valid, but not supported by this build or version
  internal,         // a broken invariant: a bug
};

}  // namespace ddprun
