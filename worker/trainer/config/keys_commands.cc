#include "worker/trainer/config/keys.h"

namespace ddprun::trainer {

void bind_distill(Settings& s, TrainConfig::Distill& d) {
  s.add("distill.teacher", d.teacher, {.help = "network that teaches, one of model.name (train.task = distillation)"});
  s.add("distill.weights", d.weights, {.help = "its parameters: a safetensors file, such as a checkpoint's model"});
  s.add("distill.hidden", d.hidden, {.help = "sizes of its hidden layers, as model.hidden"});
  s.add("distill.channels", d.channels, {.help = "its channels, as model.channels", .min = 1, .max = 1024});
  s.add("distill.temperature", d.options.temperature,
        {.help = "divides the scores of both networks before they are compared: above 1 unlikely classes count more",
         .min = 0.01,
         .max = 1000});
  s.add("distill.weight", d.options.weight,
        {.help = "share of the loss that compares the networks; the rest is the labels' cross-entropy",
         .min = 0,
         .max = 1});
}

void bind_tokenize(Settings& s, TrainConfig::Tokenize& t) {
  s.add("tokenize.vocabulary", t.vocabulary,
        {.help = "number of tokens to learn, the 256 bytes included (ddprun-worker tokenize)",
         .unit = "tokens",
         .min = 256,
         .max = 1'000'000,
         .scope = Scope::process});
}

void bind_generate(Settings& s, TrainConfig::Generate& g) {
  s.add("generate.prompt", g.prompt, {.help = "text to continue (ddprun-worker generate)", .scope = Scope::process});
  s.add(
      "generate.tokens", g.tokens,
      {.help = "number of tokens to generate", .unit = "tokens", .min = 1, .max = 1'000'000, .scope = Scope::process});
  s.add("generate.temperature", g.temperature,
        {.help = "divides the scores: below 1 likely tokens become likelier; 0: always the most likely one",
         .min = 0,
         .max = 100,
         .scope = Scope::process});
  s.add("generate.top_k", g.top_k,
        {.help = "choose among so many of the most likely tokens; 0: among all", .min = 0, .scope = Scope::process});
  s.add("generate.seed", g.seed, {.help = "seed of the choice of tokens", .min = 0, .scope = Scope::process});
  s.add("generate.quantized", g.quantized,
        {.help = "generate with the quantized model in this file, made with the same quantize.mode, in place of the "
                 "checkpoint's",
         .scope = Scope::process});
}

void bind_predict(Settings& s, TrainConfig::Predict& p) {
  s.add("predict.input", p.input,
        {.help = "samples to predict (ddprun-worker predict): an IDX file of images (mnist, digits), a file of "
                 "CIFAR-10's records (cifar10), a PNG or JPEG file (image_folder), or a .csv with the numbers of a "
                 "sample in each line. Empty: the test "
                 "set",
         .scope = Scope::process});
  s.add("predict.output", p.output,
        {.help = "CSV file with the index, the predicted class and its probability of each sample, or its index and "
                 "outputs. Empty: standard output",
         .scope = Scope::process});
  s.add("predict.quantized", p.quantized,
        {.help = "predict with the quantized model in this file, made with the same quantize.mode, in place of the "
                 "checkpoint's",
         .scope = Scope::process});
}

void bind_quantize(Settings& s, TrainConfig::Quantize& q) {
  s.add("quantize.mode", q.mode,
        {.help = "how the inputs of quantized layers are rounded (ddprun-worker quantize); dynamic: over the range of "
                 "each batch; static: over the range of training samples, or the one that train.quantization_aware "
                 "has learnt; auto: static with train.quantization_aware, else dynamic",
         .choices = {"auto", "dynamic", "static"},
         .scope = Scope::process});
  s.add("quantize.file", q.file, {.help = "safetensors file for the quantized model", .scope = Scope::process});
  s.add("quantize.samples", q.samples,
        {.help = "number of training samples that calibrate a static model",
         .unit = "samples",
         .min = 1,
         .max = max_count,
         .scope = Scope::process});
}

void bind_profile(Settings& s, TrainConfig::Profile& p) {
  s.add("profile.steps", p.steps,
        {.help = "steps to record, after which a page says where their time went; 0: none, and 20 with ddprun-worker "
                 "profile",
         .unit = "steps",
         .min = 0,
         .max = 10'000,
         .scope = Scope::group});
  s.add("profile.warmup", p.warmup,
        {.help = "steps before those that are recorded",
         .unit = "steps",
         .min = 0,
         .max = 1'000'000,
         .scope = Scope::group});
  s.add(
      "profile.trace", p.trace,
      {.help = "file for the recorded steps of all ranks in Chrome's trace event format, which Perfetto opens. Empty: "
               "none",
       .scope = Scope::group});
}

}  // namespace ddprun::trainer
