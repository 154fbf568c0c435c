#include <fmt/format.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "worker/data/tokens.h"
#include "worker/tokenizer/byte_pairs.h"
#include "worker/trainer/commands/command.h"
#include "worker/trainer/state/datasets.h"

namespace ddprun::trainer {

namespace {

// Learns tokenize.vocabulary tokens from the training part of input.txt in data.dir, writes them into data.tokenizer,
// and a line about them to standard output.
int tokenize(const CommandContext& context) {
  const TrainConfig& config = context.config;
  if (config.data.name != "text")
    throw make_error(Errc::usage, "tokenize learns from text: it needs data.name = text, not {}", config.data.name);
  if (config.data.tokenizer.empty())
    throw make_error(Errc::usage, "tokenize needs data.tokenizer: the folder for vocab.json and merges.txt");
  const std::string text = data::training_text(data_folder(config));
  const auto pairs = tokenizer::train_byte_pairs(text, config.tokenize.vocabulary);
  tokenizer::save_byte_pairs(pairs, config.data.tokenizer);
  write_standard_output(fmt::format("{}: {} tokens; {} bytes of text are {} of them\n", config.data.tokenizer.string(),
                                    pairs.size(), text.size(), pairs.encode(text).size()));
  return exit_success;
}

}  // namespace

Command tokenize_command() {
  return {.name = "tokenize",
          .usage = "tokenize train.cfg [--section.key=value ...]",
          .help =
              "tokenize learns a byte-pair encoding from the text of data.name = text, for data.tokenizer: "
              "[tokenize].\n",
          .run = tokenize};
}

}  // namespace ddprun::trainer
