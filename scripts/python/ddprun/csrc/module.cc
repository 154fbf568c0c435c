// The Python module: ddprun's back end for torch.distributed.
#include <optional>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace {

using ddprun_torch::Backend;
using ddprun_torch::InterpreterGate;
using ddprun_torch::Slot;

std::optional<std::uintptr_t> group_in(const Slot& slot) {
  auto* const group = slot.group.load();
  return group ? std::optional(reinterpret_cast<std::uintptr_t>(group)) : std::nullopt;
}
void set_group(Slot& slot, std::optional<std::uintptr_t> group) {
  slot.group = reinterpret_cast<ddprun_group*>(group.value_or(0));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  pybind11::module_::import("torch.distributed");
  const auto gate = std::make_shared<InterpreterGate>();
  module.def(
      "stop_calling_python", [gate] { gate->close(); }, "Before the interpreter ends.",
      pybind11::call_guard<pybind11::gil_scoped_release>());
  pybind11::class_<Slot, std::shared_ptr<Slot>>(module, "Slot", "Holds the handle of the group that a back end uses.")
      .def(pybind11::init<>())
      .def_property("group", group_in, set_group)
      .def("busy", [](const Slot& slot) { return slot.calls > 0; });
  pybind11::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(pybind11::init(
          [gate](const pybind11::object& membership) { return c10::make_intrusive<Backend>(membership, gate); }))
      .def_property_readonly("transport", &Backend::transport, "The way ranks communicate: shm, gloo, hierarchical.")
      .def_property_readonly("bytes_sent", &Backend::bytes_sent,
                             "Bytes that this rank has handed to the network; 0 where ranks share memory.");
  module.attr("abi_version") = DDPRUN_ABI_VERSION;
}
