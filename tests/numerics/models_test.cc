// Every model against PyTorch: training from the same weights on the same data, and weights from outside.
#include "worker/nn/models.h"

#include <map>

#include "worker/checkpoint/safetensors.h"
#include "worker/nn/state.h"
#include "worker/optim/optimizer.h"
#include "tests/numerics/model_cases.h"
#include "tests/support/numerics.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

struct Figures {
  const char* name;
  std::vector<double> losses;  // of the 20 steps
  std::vector<double> logits;  // the last two rows for two samples, in evaluation
};
const std::vector<Figures> figures_of_torch = {
#include "tests/numerics/model_losses.inc"
};

const Figures& figures_of(const std::string& name) {
  for (const Figures& figures : figures_of_torch)
    if (figures.name == name) return figures;
  FAIL("model_losses.inc has no figures of " << name);
  throw std::logic_error(std::string(name));
}

std::unique_ptr<nn::Module> make(const ModelCase& model_case) {
  Generator generator(3);
  return nn::make_model(model_case.model(), model_case.options, generator);
}

Variable inputs_of(const ModelCase& model_case, std::int64_t step, DType dtype) {
  const Tensor inputs = model_inputs(model_case, step);
  return Variable(model_case.tokens() ? inputs : inputs.to(dtype));
}

std::vector<double> train(const ModelCase& model_case, std::size_t steps) {
  const DType dtype = model_case.dtype;
  const auto model = make(model_case);
  model->to(dtype);
  std::int64_t key = 0;
  for (auto& [name, parameter] : model->named_parameters()) {
    Tensor value = parameter.value();
    value.copy_from(model_value(name, value.shape(), key++).to(dtype));
  }
  const auto optimizer =
      optim::make_optimizer("sgd", {.lr = model_case.lr, .momentum = 0.9}, model->named_parameters());
  std::vector<double> losses;
  for (std::size_t step = 0; step < steps; ++step) {
    const auto number = static_cast<std::int64_t>(step);
    optimizer->zero_grad();
    const Variable outputs = (*model)(inputs_of(model_case, number, dtype));
    const Variable loss = model_case.loss(outputs, model_targets(model_case, number));
    loss.backward();
    optimizer->step();
    losses.push_back(loss.value().item());
  }
  return losses;
}

struct Named {
  std::string name;
  Shape shape;
  DType dtype = DType::float32;
};

void write(const std::filesystem::path& file, const std::vector<Named>& parameters, const std::vector<Named>& buffers,
           const std::string& prefix = "") {
  std::vector<Tensor> tensors;
  std::vector<checkpoint::TensorView> views;
  const auto add = [&](const Named& each, std::int64_t key) {
    const Tensor& tensor = tensors.emplace_back(model_value(each.name, each.shape, key).to(each.dtype));
    views.push_back({prefix + each.name, each.dtype, each.shape.to_vector(),
                     std::span(static_cast<const std::byte*>(tensor.raw()), tensor.bytes())});
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) add(parameters[i], static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < buffers.size(); ++i) add(buffers[i], 500 + static_cast<std::int64_t>(i));
  checkpoint::FileWriter out(file);
  checkpoint::write_safetensors(out, views);
  out.finish();
}

double logits_difference(const ModelCase& model_case, nn::Module& model) {
  model.train(false);
  const Variable inputs(inputs_of(model_case, 0, DType::float32).value().slice(0, 0, 2).contiguous());
  const Tensor outputs = model(inputs).value();
  const Tensor rows = outputs.reshape({-1, outputs.shape().back()});
  const Tensor last = rows.slice(0, rows.size(0) - 2, 2);
  return difference(values(last.contiguous()), figures_of(model_case.name).logits);
}

const ModelCase& case_of(std::string_view name) {
  for (const ModelCase& model_case : model_cases())
    if (model_case.name == name) return model_case;
  FAIL("there is no case " << name);
  throw std::logic_error(std::string(name));
}

// The names of torchvision.models.resnet18().state_dict(), where the first layer has 64 channels.
struct ResnetNames {
  std::vector<Named> parameters, buffers;

  void convolution(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel) {
    parameters.push_back({name + ".weight", {out, in, kernel, kernel}});
  }
  void norm(const std::string& name, std::int64_t channels) {
    parameters.push_back({name + ".weight", {channels}});
    parameters.push_back({name + ".bias", {channels}});
    buffers.push_back({name + ".running_mean", {channels}});
    buffers.push_back({name + ".running_var", {channels}});
    buffers.push_back({name + ".num_batches_tracked", {}, DType::int64});
  }
  void bottleneck(const std::string& name, std::int64_t in, std::int64_t width, bool changes) {
    convolution(name + ".conv1", in, width, 1);
    norm(name + ".bn1", width);
    convolution(name + ".conv2", width, width, 3);
    norm(name + ".bn2", width);
    convolution(name + ".conv3", width, 4 * width, 1);
    norm(name + ".bn3", 4 * width);
    if (!changes) return;
    convolution(name + ".downsample.0", in, 4 * width, 1);
    norm(name + ".downsample.1", 4 * width);
  }
  void block(const std::string& name, std::int64_t in, std::int64_t out) {
    convolution(name + ".conv1", in, out, 3);
    norm(name + ".bn1", out);
    convolution(name + ".conv2", out, out, 3);
    norm(name + ".bn2", out);
    if (in == out) return;
    convolution(name + ".downsample.0", in, out, 1);
    norm(name + ".downsample.1", out);
  }
};

// Returns the names of torchvision.models.resnet50().
ResnetNames names_of_resnet50(std::int64_t first) {
  ResnetNames names;
  names.convolution("conv1", 3, first, 7);
  names.norm("bn1", first);
  std::int64_t in = first;
  const std::int64_t blocks[] = {3, 4, 6, 3};
  for (std::int64_t layer = 0; layer < 4; ++layer)
    for (std::int64_t i = 0; i < blocks[layer]; ++i) {
      const std::int64_t width = first << layer;
      names.bottleneck("layer" + std::to_string(layer + 1) + "." + std::to_string(i), in, width, i == 0);
      in = 4 * width;
    }
  names.parameters.push_back({"fc.weight", {10, in}});
  names.parameters.push_back({"fc.bias", {10}});
  return names;
}

ResnetNames names_of_torchvision(std::int64_t stem, std::int64_t first) {
  ResnetNames names;
  names.convolution("conv1", 3, first, stem);
  names.norm("bn1", first);
  std::int64_t in = first;
  for (std::int64_t layer = 1; layer <= 4; ++layer) {
    const std::int64_t out = first << (layer - 1);
    names.block("layer" + std::to_string(layer) + ".0", in, out);
    names.block("layer" + std::to_string(layer) + ".1", out, out);
    in = out;
  }
  names.parameters.push_back({"fc.weight", {10, 8 * first}});
  names.parameters.push_back({"fc.bias", {10}});
  return names;
}

// Returns the names of transformers.GPT2Model.state_dict(), for 2 layers of width 16, 12 positions and 17 tokens.
std::vector<Named> names_of_hugging_face() {
  std::vector<Named> names{{"wte.weight", {17, 16}}, {"wpe.weight", {12, 16}}};
  const auto add = [&](const std::string& name, Shape weight) {
    names.push_back({name + ".weight", weight});
    names.push_back({name + ".bias", {weight.back()}});
  };
  for (const char* layer : {"h.0", "h.1"}) {
    const std::string h = layer;
    add(h + ".ln_1", {16});
    add(h + ".attn.c_attn", {16, 48});
    add(h + ".attn.c_proj", {16, 16});
    add(h + ".ln_2", {16});
    add(h + ".mlp.c_fc", {16, 64});
    add(h + ".mlp.c_proj", {64, 16});
  }
  add("ln_f", {16});
  return names;
}

}  // namespace

TEST_CASE("training steps of every model have PyTorch's losses") {
  for (const ModelCase& model_case : model_cases()) {
    INFO(model_case.name);
    std::vector<double> expected = figures_of(model_case.name).losses;
    REQUIRE(expected.size() == 20);
    expected.resize(model_case.steps);
    const std::vector<double> losses = train(model_case, expected.size());
    CHECK(difference(losses, expected) < 5e-7);
  }
}

TEST_CASE("ResNet-18 loads torchvision's weights and has its logits") {
  const testing::TempDir folder;
  const auto file = folder.path() / "resnet18.safetensors";
  for (const auto& [stem, kernel] : std::map<std::string, std::int64_t>{{"cifar", 3}, {"imagenet", 7}}) {
    INFO(stem);
    const ResnetNames names = names_of_torchvision(kernel, 8);
    write(file, names.parameters, names.buffers);
    const ModelCase& model_case = case_of("resnet18 " + stem);
    const auto model = make(model_case);
    nn::load_state(*model, file);
    CHECK(logits_difference(model_case, *model) < 1e-5);
  }
}

TEST_CASE("ResNet-50 loads torchvision's weights and has its logits") {
  const testing::TempDir folder;
  const auto file = folder.path() / "resnet50.safetensors";
  const ResnetNames names = names_of_resnet50(4);
  write(file, names.parameters, names.buffers);
  const ModelCase& model_case = case_of("resnet50");
  const auto model = make(model_case);
  nn::load_state(*model, file);
  CHECK(logits_difference(model_case, *model) < 1e-4);
}

TEST_CASE("GPT loads Hugging Face's weights of GPT-2 and has its logits") {
  const testing::TempDir folder;
  const auto file = folder.path() / "gpt2.safetensors";
  const ModelCase& model_case = case_of("gpt");
  for (const std::string prefix : {"", "transformer."}) {
    INFO(prefix);
    write(file, names_of_hugging_face(), {}, prefix);
    const auto model = make(model_case);
    nn::load_state(*model, file, {.prefix = prefix});
    CHECK(logits_difference(model_case, *model) < 1e-5);
  }
  // Older files have the causal masks as well.
  write(file, names_of_hugging_face(), {{"h.0.attn.bias", {1, 1, 12, 12}}, {"h.1.attn.bias", {1, 1, 12, 12}}});
  const auto model = make(model_case);
  CHECK_THROWS_WITH(nn::load_state(*model, file), Catch::Contains("unexpected h.0.attn.bias, h.1.attn.bias"));
  nn::load_state(*model, file, {.ignored_suffixes = {".attn.bias"}});
  CHECK(logits_difference(model_case, *model) < 1e-5);
}
