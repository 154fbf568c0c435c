// The Python module: ddprun's back end for torch.distributed.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace {

using ddprun_torch::Backend;
using ddprun_torch::GroupSettings;
using ddprun_torch::InterpreterGate;
using ddprun_torch::ProcessEnd;

GroupSettings settings_of(const std::string& name, const std::string& backend, const std::string& network_interface,
                          double freeze_bound) {
  return {name, backend, network_interface, std::chrono::milliseconds(static_cast<std::int64_t>(freeze_bound * 1000))};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  pybind11::module_::import("torch.distributed");
  pybind11::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def_property_readonly("transport", &Backend::transport, "The way ranks communicate: shm, gloo, hierarchical.")
      .def_property_readonly("bytes_sent", &Backend::bytes_sent,
                             "Bytes that this rank has handed to the network; 0 where ranks share memory.");
  const auto gate = std::make_shared<InterpreterGate>();
  module.def(
      "stop_calling_python", [gate] { gate->close(); }, "Before the interpreter ends.",
      pybind11::call_guard<pybind11::gil_scoped_release>());
  const auto process_end = std::make_shared<ProcessEnd>();
  module.def(
      "leave_groups", [process_end] { process_end->leave_all(); }, "Before the process ends.",
      pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def(
      "drain_stores", [process_end](std::chrono::milliseconds at_most) { return process_end->drain(at_most); },
      "Then: whether no rank needs a store of this process any longer.",
      pybind11::call_guard<pybind11::gil_scoped_release>());
  const auto make_backend = [gate, process_end](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                std::chrono::milliseconds timeout,
                                                std::vector<std::uint64_t> global_ranks, bool enable_reconfigure,
                                                const std::string& name, const std::string& backend,
                                                const std::string& network_interface, double freeze_bound) {
    auto options = c10::make_intrusive<Backend::Options>(timeout);
    options->settings = settings_of(name, backend, network_interface, freeze_bound);
    options->gate = gate;
    options->process_end = process_end;
    options->global_ranks_in_group = std::move(global_ranks);
    options->enable_reconfigure = enable_reconfigure;
    return c10::make_intrusive<Backend>(store, rank, size, std::move(options));
  };
  module.def("make_backend", make_backend, pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
             pybind11::arg("timeout"), pybind11::arg("global_ranks"), pybind11::arg("enable_reconfigure"),
             pybind11::arg("name"), pybind11::arg("backend"), pybind11::arg("network_interface"),
             pybind11::arg("freeze_bound"), pybind11::call_guard<pybind11::gil_scoped_release>());
  module.attr("abi_version") = DDPRUN_ABI_VERSION;
}
