// A convolutional net of libtorch on handwritten digits, with a checkpoint after each step.
// usage: digits FOLDER STEPS CHECKPOINT [HOOK]     FOLDER: of the IDX files
// Prints the process id, then a rank's loss of each step. digits_peer.py does the same in PyTorch.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <torch/torch.h>
#include <unistd.h>

#include "ddprun/common/environment.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/libtorch/distributed_data_parallel.h"
#include "ddprun/worker/reducer/built_in_hooks.h"

namespace {

constexpr int batch_size = 32;

torch::Tensor idx_file(const std::string& path, std::size_t header) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (bytes.size() <= header) throw std::runtime_error(path + " is missing or damaged");
  const auto count = static_cast<std::int64_t>(bytes.size() - header);
  return torch::from_blob(const_cast<char*>(bytes.data()) + header, {count}, torch::kByte).clone();
}

torch::nn::Sequential make_net() {
  using namespace torch::nn;
  Sequential net(Conv2d(1, 8, 5), ReLU(), MaxPool2d(2), Conv2d(8, 16, 5), BatchNorm2d(16), ReLU(), MaxPool2d(2),
                 Flatten(), Linear(256, 10), LogSoftmax(1));
  torch::NoGradGuard no_grad;  // the same weights as the peer's, whatever the version of PyTorch
  for (auto& parameter : net->parameters())
    parameter.copy_(torch::arange(parameter.numel(), torch::kDouble).mul(0.7).sin().mul(0.1).view_as(parameter));
  return net;
}

void save(const std::string& path, const torch::nn::Sequential& net, const torch::optim::SGD& optimizer, int step) {
  torch::serialize::OutputArchive archive, of_net, of_optimizer;
  net->save(of_net);
  optimizer.save(of_optimizer);
  archive.write("net", of_net);
  archive.write("optimizer", of_optimizer);
  archive.write("step", torch::tensor(step));
  archive.save_to(path + ".new");
  std::filesystem::rename(path + ".new", path);
}

int resume(const std::string& path, torch::nn::Sequential& net, torch::optim::SGD& optimizer) {
  if (!std::filesystem::exists(path)) return 0;
  torch::serialize::InputArchive archive, of_net, of_optimizer;
  archive.load_from(path);
  archive.read("net", of_net);
  net->load(of_net);
  archive.read("optimizer", of_optimizer);
  optimizer.load(of_optimizer);
  torch::Tensor step;
  archive.read("step", step);
  return step.item<int>();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw std::runtime_error("usage: digits FOLDER STEPS CHECKPOINT [HOOK]");
  const std::string folder = argv[1], checkpoint = argv[3];
  torch::set_num_threads(1);
  const auto env = ddprun::WorkerEnv::from(ddprun::Environment::capture());
  const auto world = ddprun::init_process_group({.env = env});
  auto images = idx_file(folder + "/train-images-idx3-ubyte", 16).to(torch::kFloat).div(255).view({-1, 1, 28, 28});
  auto labels = idx_file(folder + "/train-labels-idx1-ubyte", 8).to(torch::kLong);

  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  int step = resume(checkpoint, net, optimizer);
  ddprun::torch::DistributedDataParallel ddp(net, world->group(), {.limits = {.first_bytes = 4096, .bytes = 16384}});
  if (argc > 4) ddp.register_comm_hook(ddprun::make_hook(argv[4], world->group()));
  std::printf("rank %d of %d, pid %d, begins at step %d\n", env.rank, env.world_size, static_cast<int>(::getpid()),
              step);
  std::fflush(stdout);
  while (step < std::atoi(argv[2])) {
    const auto first = (static_cast<std::int64_t>(step) * env.world_size + env.rank) * batch_size;
    const auto loss = torch::nll_loss(ddp(images.narrow(0, first, batch_size)), labels.narrow(0, first, batch_size));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    ++step;
    std::printf("rank %d step %d loss %.9f\n", env.rank, step, loss.item<double>());
    std::fflush(stdout);
    if (env.rank == 0) save(checkpoint, net, optimizer, step);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "digits: %s\n", error.what());
  return 1;
}
