#pragma once

#include <c10/util/Exception.h>
#include <exception>
#include <string>

#include "ddprun/worker/capi/ddprun.h"

namespace ddprun_torch {

// Returns the Python exception that fits: ValueError, TypeError, NotImplementedError, else
// torch.distributed.DistBackendError.
// Scripts look for the word "timeout", which Gloo's messages have.
inline std::exception_ptr exception_of(const ddprun_error& error) {
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  const auto message =
      std::string(error.code == DDPRUN_TIMEOUT ? "ddprun: timeout of the operation: " : "ddprun: ") + error.message;
  switch (error.code) {
    case DDPRUN_USAGE:
      return std::make_exception_ptr(c10::ValueError(here, message));
    case DDPRUN_WRONG_TYPE:
      return std::make_exception_ptr(c10::TypeError(here, message));
    case DDPRUN_UNSUPPORTED:
      return std::make_exception_ptr(c10::NotImplementedError(here, message));
    default:
      return std::make_exception_ptr(c10::DistBackendError(here, message));
  }
}

inline void check(const ddprun_error& error) {
  if (error.code != DDPRUN_OK) std::rethrow_exception(exception_of(error));
}

}  // namespace ddprun_torch
