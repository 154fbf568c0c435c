#include "worker/trainer/config/keys.h"

namespace ddprun::trainer {

std::vector<std::string_view> built_in_data() {
  return {"mnist", "cifar10", "image_folder", "digits", "random", "text", "tokens"};
}

void bind_data(Settings& s, TrainConfig::Data& d, const plugin::Registry& registry) {
  s.add(
      "data.name", d.name,
      {.help = "mnist, cifar10: the files in data.dir, or generated digits or images when the default folder does not "
               "hold them; image_folder: PNG and JPEG files in data.dir; digits: generated digits; random: random "
               "tensors with a linear rule to learn; text: the "
               "bytes of input.txt in data.dir, of which the last tenth is the test set; tokens: 16-bit tokens in the "
               "files train*.bin and val*.bin in data.dir",
       .choices = joined(texts(built_in_data()), registry.datasets.names())});
  s.add("data.dir", d.dir,
        {.help = "folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                 "t10k-labels-idx1-ubyte, each plain or .gz (mnist), with data_batch_1.bin to data_batch_5.bin and "
                 "test_batch.bin (cifar10), with a folder for each class in train and val (image_folder), with "
                 "input.txt (text), or with train*.bin and val*.bin (tokens). Empty: "
                 "data/mnist, data/cifar10, data/image_folder, data/text, data/tokens",
         .scope = Scope::process});
  s.add("data.shuffle", d.shuffle, {.help = "shuffle the samples in each epoch, as PyTorch's DistributedSampler"});
  s.add("data.drop_last", d.drop_last,
        {.help = "leave out the last samples of an epoch that do not divide by the world size, or that do not fill a "
                 "step of train.global_batch_size; otherwise each sample is trained once per epoch"});
  s.add("data.ledger", d.ledger,
        {.help = "JSON lines file, on each host, with the samples of each step, from which ddprun-worker ledger verify "
                 "proves that each sample of each epoch was trained once. Empty: none",
         .scope = Scope::group});
  s.add("data.workers", d.loader.workers,
        {.help = "threads per rank that prepare batches; 0: batches are prepared between steps",
         .min = 0,
         .max = 64,
         .scope = Scope::process});
  s.add("data.prefetch", d.loader.prefetch,
        {.help = "maximum number of batches prepared in advance", .min = 1, .max = 1024, .scope = Scope::process});
  s.add("data.normalize", d.normalize,
        {.help = "normalize levels by the mean and standard deviation of MNIST (mnist, digits), or of each channel of "
                 "CIFAR-10 (cifar10) or ImageNet (image_folder)"});
  s.add("data.image_size", d.image_size,
        {.help = "height and width of a sample: a picture is scaled so that its shorter side has this size, then the "
                 "square in its middle is taken (image_folder)",
         .unit = "pixels",
         .min = 1,
         .max = 4096});
  s.add("data.crop_padding", d.augmentation.crop_padding,
        {.help = "black pixels added at each side of a training image, of which then a random part of the old size is "
                 "taken; 0: none",
         .unit = "pixels",
         .min = 0,
         .max = 1024});
  s.add("data.flip", d.augmentation.flip,
        {.help = "mirror every other training image, chosen at random, left to right"});
  s.add("data.cutout", d.augmentation.cutout,
        {.help = "height and width of a square around a random pixel of a training image that is set to 0; 0: none",
         .unit = "pixels",
         .min = 0,
         .max = 4096});
  s.add("data.mixup", d.mixup,
        {.help = "each training sample is mixed with another one, and learnt as a share of both classes, drawn from "
                 "Beta(a, a) with this a; 0: none",
         .min = 0,
         .max = 1000});
  s.add("data.samples", d.samples,
        {.help = "number of generated training samples (digits, random, images in place of cifar10)",
         .min = 1,
         .max = 100'000'000});
  s.add("data.test_samples", d.test_samples,
        {.help = "number of generated test samples (digits, random, images in place of cifar10)",
         .min = 1,
         .max = 100'000'000});
  s.add("data.seed", d.seed,
        {.help = "seed of the generated samples (digits, random, images in place of cifar10)", .min = 0});
  s.add("data.shape", d.shape, {.help = "shape of a sample, such as 16 or 1x28x28 (random)"});
  s.add("data.context", d.context,
        {.help = "tokens of a sample (text, tokens)", .unit = "tokens", .min = 1, .max = 1'000'000});
  s.add("data.tokenizer", d.tokenizer,
        {.help = "folder with vocab.json and merges.txt, as GPT-2's or those of ddprun-worker tokenize: the tokens of "
                 "text are those of this byte-pair encoding. Empty: they are bytes. With tokens: the encoding in "
                 "which they were written, for ddprun-worker generate"});
  s.add("data.vocabulary", d.vocabulary, {.help = "number of different tokens (tokens)", .min = 2, .max = 1'000'000});
  s.add("data.outputs", d.outputs,
        {.help = "number of outputs to predict, or of classes (random)", .min = 1, .max = 1'000'000});
  s.add("data.labels", d.labels, {.help = "targets are class labels instead of numbers (random)"});
  s.add("data.noise", d.noise, {.help = "standard deviation of the noise on the outputs (random)", .min = 0});
}

}  // namespace ddprun::trainer
