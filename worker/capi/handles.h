#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "common/error.h"
#include "rendezvous/store/store_server_thread.h"
#include "worker/capi/ddprun.h"
#include "worker/capi/epilogue.h"
#include "worker/comm/process_group.h"

// The types behind the handles of ddprun.h.
struct ddprun_store_server {
  ddprun::StoreServerThread server;
  bool ending = false;  // its end has been announced
};
struct ddprun_group {
  std::shared_ptr<ddprun::ProcessGroup> group;  // that of a recovery is not owned
};
struct ddprun_work {
  ddprun::WorkPtr work;
  std::shared_ptr<ddprun::capi::Epilogue> epilogue;  // null if nothing is left to do after the end
};
struct ddprun_memory {
  ddprun::RegisteredBuffer buffer;
};

namespace ddprun::capi {

// Tensors of types that do not fit together: DDPRUN_WRONG_TYPE.
class WrongType : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void set_error(ddprun_error* error, std::int32_t code, std::string_view message) {
  error->code = code;
  const auto length = std::min(message.size(), sizeof error->message - 1);
  std::memcpy(error->message, message.data(), length);
  error->message[length] = '\0';
}

// The codes of C are those of Errc, after DDPRUN_OK.
constexpr std::int32_t code_of(Errc code) {
  return static_cast<std::int32_t>(code) + 1;
}
static_assert(code_of(Errc::usage) == DDPRUN_USAGE && code_of(Errc::peer_lost) == DDPRUN_PEER_LOST &&
              code_of(Errc::internal) == DDPRUN_INTERNAL);

// Runs action(); what it throws becomes *error. Returns the code.
template <class Action>
std::int32_t guarded(ddprun_error* error, Action action) noexcept {
  try {
    action();
    error->code = DDPRUN_OK;
    error->message[0] = '\0';
  } catch (const Error& thrown) {
    set_error(error, code_of(thrown.code()), thrown.what());
  } catch (const WrongType& thrown) {
    set_error(error, DDPRUN_WRONG_TYPE, thrown.what());
  } catch (const std::exception& thrown) {
    set_error(error, DDPRUN_INTERNAL, thrown.what());
  }
  return error->code;
}

}  // namespace ddprun::capi
