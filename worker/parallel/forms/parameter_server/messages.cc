#include "worker/parallel/forms/parameter_server/messages.h"

#include "common/error.h"

namespace ddprun::parameter_server {

void finish(const std::vector<WorkPtr>& works) {
  for (const auto& work : works) {
    try {
      work->wait();
    } catch (const Error&) {
      // Another operation has reported that the group is broken.
    }
  }
}

}  // namespace ddprun::parameter_server
