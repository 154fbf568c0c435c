#include "worker/trainer/session/gradient_rules.h"

namespace ddprun::trainer {

std::unique_ptr<GradientRules> make_gradient_rules(const RuleContext& context, Device device, Device device_of_losses) {
  return device.type == DeviceType::cuda ? make_device_rules(context, device, device_of_losses)
                                         : make_host_rules(context);
}

}  // namespace ddprun::trainer
