#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

// Every form of parallel training, with a job that each can run. tests/process/parallel_forms_test.cc kills and
// restarts these jobs, and `ddprun-bench parallel` measures them.
namespace ddprun::testing {

struct ParallelForm {
  std::string name;
  int ranks = 1;
  std::string model = "gpt";           // also gpt_experts, mlp, cnn_bn
  std::vector<std::string> overrides;  // settings of a train.cfg: "parallel.zero=1"
  bool exact = true;                   // learns what one process with the same global batch does, except for rounding
  bool repeatable = true;              // two runs have the same bits
  bool threads = false;                // computes in several threads of a rank
};

inline std::vector<ParallelForm> data_parallel_forms() {
  return {{.name = "ddp", .ranks = 2, .overrides = {}},
          {.name = "ddp mlp", .ranks = 2, .model = "mlp", .overrides = {}},
          {.name = "ddp cnn_bn", .ranks = 2, .model = "cnn_bn", .overrides = {}, .exact = false},
          {.name = "sync_bn", .ranks = 2, .model = "cnn_bn", .overrides = {"parallel.sync_batch_norm=true"}},
          {.name = "zero 1", .ranks = 2, .overrides = {"parallel.zero=1"}},
          {.name = "zero 2", .ranks = 2, .overrides = {"parallel.zero=2"}},
          {.name = "zero 3", .ranks = 2, .overrides = {"parallel.zero=3"}},
          {.name = "zero 3 shard_group 2", .ranks = 4, .overrides = {"parallel.zero=3", "parallel.shard_group=2"}},
          {.name = "balance", .ranks = 2, .overrides = {"parallel.balance=true"}, .repeatable = false}};
}

inline std::vector<ParallelForm> compressed_forms() {
  std::vector<ParallelForm> forms;
  for (const std::string hook : {"fp16", "bf16", "int8", "int8_channel", "int4", "topk", "powersgd"}) {
    forms.push_back({.name = "hook " + hook, .ranks = 2, .overrides = {"parallel.hook=" + hook}, .exact = false});
    if (hook == "powersgd") forms.back().overrides.emplace_back("parallel.start_powerSGD_iter=2");
  }
  forms.push_back({.name = "hook onebit",
                   .ranks = 2,
                   .overrides = {"parallel.hook=onebit", "parallel.freeze_step=2", "optim.name=adam"},
                   .exact = false});
  forms.push_back({.name = "local_sgd",
                   .ranks = 2,
                   .overrides = {"parallel.strategy=local_sgd", "parallel.local_sgd_period=5"},
                   .exact = false});
  forms.push_back(
      {.name = "local_sgd streaming",
       .ranks = 2,
       .overrides = {"parallel.strategy=local_sgd", "parallel.local_sgd_period=5", "parallel.outer_lr=0.7",
                     "parallel.outer_momentum=0.9", "parallel.fragments=2", "parallel.fragment_sync_delay=1"},
       .exact = false});
  return forms;
}

inline constexpr const char* two_devices = "parallel.devices=cpu:0 cpu:1";

inline std::vector<ParallelForm> divided_model_forms() {
  return {{.name = "data_parallel", .overrides = {"parallel.strategy=data_parallel", two_devices}, .threads = true},
          {.name = "model_parallel mlp", .model = "mlp", .overrides = {two_devices, "parallel.split=fc2"}},
          {.name = "tensor", .ranks = 2, .overrides = {"parallel.tensor=2"}},
          {.name = "tensor sequence", .ranks = 2, .overrides = {"parallel.tensor=2", "parallel.sequence=true"}},
          {.name = "context", .ranks = 2, .overrides = {"parallel.context=2"}},
          {.name = "context 4", .ranks = 4, .overrides = {"parallel.context=4"}},
          {.name = "ddp gpt_experts", .ranks = 2, .model = "gpt_experts", .overrides = {}, .exact = false},
          {.name = "expert", .ranks = 2, .model = "gpt_experts", .overrides = {"parallel.expert=2"}}};
}

// Products of axes of the mesh.
inline std::vector<ParallelForm> mesh_forms() {
  const std::vector<std::string> three_axes{"parallel.tensor=2", "parallel.pipeline=2", "parallel.micro_batches=4"};
  std::vector<ParallelForm> forms{
      {.name = "mesh data x expert", .ranks = 4, .model = "gpt_experts", .overrides = {"parallel.expert=2"}},
      {.name = "tensor with zero 3", .ranks = 4, .overrides = {"parallel.tensor=2", "parallel.zero=3"}},
      {.name = "mesh pipeline x data x tensor", .ranks = 8, .overrides = three_axes}};
  for (const std::string zero : {"1", "3"}) {
    forms.push_back({.name = "mesh with zero " + zero, .ranks = 8, .overrides = three_axes});
    forms.back().overrides.push_back("parallel.zero=" + zero);
  }
  return forms;
}

inline std::vector<ParallelForm> pipeline_forms() {
  std::vector<ParallelForm> forms;
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zero_bubble"})
    for (const bool over_ranks : {true, false}) {
      ParallelForm form{.name = "pipeline " + schedule + (over_ranks ? "" : " devices"),
                        .ranks = over_ranks ? 2 : 1,
                        .overrides = {over_ranks ? "parallel.pipeline=2" : two_devices, "parallel.micro_batches=4",
                                      "parallel.schedule=" + schedule},
                        .threads = !over_ranks};
      if (schedule == "interleaved") form.overrides.push_back("parallel.virtual_stages=2");
      forms.push_back(form);
    }
  return forms;
}

inline std::vector<ParallelForm> parallel_forms() {
  auto forms = data_parallel_forms();
  for (const auto& more : {compressed_forms(), divided_model_forms(), mesh_forms(), pipeline_forms()})
    forms.insert(forms.end(), more.begin(), more.end());
  return forms;
}

// The sizes of the job that all forms run.
struct FormJobSize {
  int width = 32;  // width of a GPT of 4 blocks and 4 heads
  int context = 16;
  int hidden = 32;  // width of an MLP's first layer
  int batch = 16;   // samples of a step over all ranks
};

// Writes a train.cfg without [parallel] into the folder, with a text of its own where a GPT needs one.
inline std::filesystem::path write_form_job(const std::filesystem::path& folder, const std::string& model,
                                            const FormJobSize& size) {
  std::ofstream text(folder / "input.txt");
  for (int i = 0; i < 2000; ++i) text << "line " << i * 37 % 101 << " of the text, ";
  const auto file = folder / (model + ".cfg");
  std::ofstream config(file);
  const bool experts = model == "gpt_experts";
  config << "[model]\nname = " << (experts ? "gpt" : model) << '\n';
  if (experts) config << "experts = 4\n";
  if (experts || model == "gpt") {
    config << "layers = 4\nheads = 4\nwidth = " << size.width << "\ncontext = " << size.context
           << "\n[data]\nname = text\ndir = " << folder.string() << "\ncontext = " << size.context << '\n';
  } else {
    if (model == "mlp") config << "hidden = " << size.hidden << ' ' << size.hidden / 2 << '\n';
    config << "[data]\nname = digits\nsamples = 320\ntest_samples = 32\n";
  }
  config << "[train]\nepochs = 1000000\nlog_every = 0\nglobal_batch_size = " << size.batch
         << "\n[eval]\nevery_epochs = 0\n[optim]\nname = sgd\nlr = 0.01\n";
  return file;
}

}  // namespace ddprun::testing
