#include "worker/nn/models.h"
#include "worker/trainer/config/keys.h"

namespace ddprun::trainer {

void bind_model(Settings& s, TrainConfig::Model& m, const plugin::Registry& registry) {
  s.add("model.name", m.name,
        {.help = "network to train", .choices = joined(texts(nn::model_names()), registry.models.names())});
  s.add("model.plugin", m.plugin,
        {.help = "shared library with models, data sets and tasks, whose names model.name, data.name and train.task "
                 "then accept; its code is executed",
         .scope = Scope::process});
  s.add("model.hidden", m.hidden_sizes, {.help = "sizes of the hidden layers of mlp, such as 128 64"});
  s.add("model.dropout", m.dropout,
        {.help = "probability of dropping an activation: after a hidden layer of mlp; in gpt and transformer of the "
                 "embeddings, the attention weights and the results of attention and MLP",
         .min = 0,
         .max = 0.99});
  s.add("model.stem", m.stem,
        {.help = "first layers of resnet18 and resnet50: cifar, 3x3 with stride 1, for small images; imagenet, 7x7 "
                 "with stride 2 and max-pooling",
         .choices = texts(nn::resnet_stems())});
  s.add("model.channels", m.channels,
        {.help = "channels of the first layer of resnet18 and resnet50; the last one has 8 times as many, in resnet50 "
                 "32 times",
         .min = 1,
         .max = 1024});
}

void bind_fine_tuning(Settings& s, TrainConfig::Model& m) {
  s.add("model.weights", m.weights,
        {.help = "safetensors file with which training begins in place of random numbers: a checkpoint's model, or "
                 "weights of torchvision or Hugging Face. Empty: none"});
  s.add("model.weights_prefix", m.weights_prefix,
        {.help = "take only the tensors of model.weights whose names begin with this, without it: transformer. for a "
                 "GPT2LMHeadModel"});
  s.add("model.weights_except", m.weights_except,
        {.help = "parameters and buffers that begin with random numbers nevertheless, whether model.weights has them "
                 "or not: paths, modules or patterns such as fc layer4.*.conv2.weight, separated by blanks"});
  s.add("model.freeze", m.freeze,
        {.help = "parameters that are not trained: paths, modules or patterns, as in model.weights_except"});
}

void bind_transformers(Settings& s, TrainConfig::Model& m) {
  s.add("model.preset", m.gpt.preset,
        {.help = "sizes of gpt and transformer where none are given", .choices = texts(nn::gpt_presets())});
  s.add("model.layers", m.gpt.layers,
        {.help = "blocks of gpt and transformer; 0: the preset's", .min = 0, .max = 1000});
  s.add("model.heads", m.gpt.heads,
        {.help = "attention heads of a block of gpt and transformer; 0: the preset's", .min = 0, .max = 1000});
  s.add("model.width", m.gpt.width,
        {.help = "features of a token in gpt, of a position in transformer, a multiple of the heads; 0: the preset's",
         .min = 0,
         .max = 65536});
  s.add("model.context", m.gpt.context,
        {.help = "number of tokens that gpt sees at most; 0: the preset's", .min = 0, .max = 1'000'000});
  s.add("model.vocabulary", m.gpt.vocabulary,
        {.help = "number of tokens that gpt knows; 0: the preset's, or where it has none the data set's",
         .min = 0,
         .max = 1'000'000});
  s.add("model.bias", m.gpt.bias, {.help = "biases in the linear layers and normalizations of gpt"});
  s.add("model.feedforward", m.encoder.feedforward,
        {.help = "features between the two linear layers of a block of transformer; 0: 4 x model.width",
         .min = 0,
         .max = 1'000'000});
  s.add("model.activation", m.encoder.activation,
        {.help = "function between those two layers", .choices = texts(nn::transformer_activations())});
  s.add("model.norm_first", m.encoder.norm_first,
        {.help = "transformer normalizes what attention and linear layers take; otherwise what comes out, as PyTorch "
                 "by default"});
}

void bind_experts(Settings& s, TrainConfig::Model& m) {
  s.add("model.experts", m.experts.experts,
        {.help = "experts of a mixture in place of the MLP in blocks of gpt; 0: one MLP", .min = 0, .max = 4096});
  s.add("model.experts_per_token", m.experts.per_token,
        {.help = "experts that compute a token, the most probable ones", .min = 1, .max = 4096});
  s.add("model.expert_every", m.experts.every,
        {.help = "of so many blocks the last one has experts", .min = 1, .max = 1000});
  s.add("model.capacity_factor", m.experts.capacity_factor,
        {.help = "an expert computes so many times its equal share of a batch's tokens, and what it is chosen for "
                 "beyond that is dropped; 0: nothing is dropped",
         .min = 0,
         .max = 4096});
  s.add("model.load_balancing_loss", m.experts.load_balancing_loss,
        {.help = "weight of the loss that keeps experts equally busy", .min = 0, .max = 1000});
  s.add("model.router_z_loss", m.experts.router_z_loss,
        {.help = "weight of the loss that keeps the logits of routers small", .min = 0, .max = 1000});
}

}  // namespace ddprun::trainer
