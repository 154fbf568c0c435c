#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/config/config_file.h"
#include "common/error.h"
#include "worker/nn/models.h"
#include "worker/trainer/config/train_config.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

using Texts = std::vector<std::string>;

std::vector<ConfigEntry> entries(const Texts& texts, const std::string& where = "") {
  std::vector<ConfigEntry> all;
  for (const auto& text : texts) {
    const auto at = text.find('=');
    const auto key = text.substr(0, at);
    all.push_back({key, text.substr(at + 1), where.empty() ? "--" + key : fmt::format("{}:{}", where, all.size() + 1)});
  }
  return all;
}

struct Job {
  TrainConfig config;
  Settings settings;
  Texts notices;

  explicit Job(const Texts& file, const Texts& overrides = {}, std::string_view command = "train") {
    plugin::Registry plugin;
    plugin.models.add("plugins_model", {});
    plugin.datasets.add("plugins_data", {});
    bind(settings, config, plugin);
    apply(settings, entries(file, "t.cfg"), Origin::file);
    apply(settings, entries(overrides), Origin::command_line);
    settle_batch_size(settings, config);
    notices = settle_needs(settings, config, command);
    validate(config, settings);
  }
};

std::string error_of(const Texts& file, const Texts& overrides = {}, std::string_view command = "train") {
  try {
    Job(file, overrides, command);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  return "no error";
}

Texts joined(Texts a, const Texts& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A setting with settings with which it has an effect, and settings with which it has none.
struct Example {
  std::string setting;
  Texts effective, idle;
  std::string command = "train";
};

const Texts gpt{"model.name=gpt", "data.name=text"}, transformer{"model.name=transformer"};
const Texts random_data{"data.name=random", "model.name=linear"};
const Texts distillation{"train.task=distillation", "distill.teacher=mlp", "distill.weights=w.safetensors"};
const Texts of_resnet{"train.task=distillation", "distill.teacher=resnet18", "distill.weights=w.safetensors"};
const Texts experts = joined(gpt, {"model.experts=2"});
const Texts local_sgd{"parallel.strategy=local_sgd"}, servers{"parallel.strategy=parameter_server"};
const Texts folder{"checkpoint.dir=c"};
const Texts pipeline{"parallel.pipeline=2", "parallel.micro_batches=4"};
const Texts one_device{"parallel.devices=cpu:0"};

const std::vector<Example> examples{
    {"model.hidden=64", {"model.name=mlp"}, {"model.name=cnn"}},
    {"data.ledger=l.jsonl", {}, {"parallel.strategy=parameter_server"}},
    {"recovery.wait=5", {}, {"recovery.mode=restart"}},
    {"checkpoint.peers=1", {"parallel.zero=1"}, {}},
    {"checkpoint.peers=1", {"parallel.tensor=2", "model.name=gpt", "data.name=text"}, {"recovery.mode=restart"}},
    {"checkpoint.heal_memory=5", {}, {"recovery.mode=restart"}},
    {"recovery.standby=false", {}, {"recovery.mode=restart"}},
    {"recovery.file=r.jsonl", {}, {"recovery.mode=restart"}},
    {"model.dropout=0.1", {"model.name=mlp"}, {"model.name=cnn"}},
    {"model.stem=imagenet", {"model.name=resnet50"}, {}},
    {"model.channels=8", {"model.name=resnet18"}, {}},
    {"model.preset=small", gpt, {}},
    {"model.layers=4", transformer, {"model.name=mlp"}},
    {"model.heads=4", gpt, {}},
    {"model.width=64", transformer, {}},
    {"model.context=256", gpt, transformer},
    {"model.vocabulary=300", gpt, transformer},
    {"model.bias=false", gpt, transformer},
    {"model.feedforward=64", transformer, gpt},
    {"model.activation=relu", transformer, gpt},
    {"model.norm_first=false", transformer, gpt},
    {"model.experts=4", gpt, {"model.name=mlp"}},
    {"model.experts_per_token=1", experts, gpt},
    {"model.expert_every=2", experts, gpt},
    {"model.capacity_factor=1", experts, gpt},
    {"model.load_balancing_loss=0.1", experts, gpt},
    {"model.router_z_loss=0.1", experts, gpt},
    {"model.weights_prefix=a.", {"model.weights=w"}, {}},
    {"model.weights_except=fc", {"model.weights=w"}, {}},
    {"data.dir=d", {"data.name=mnist"}, {"data.name=digits"}},
    {"data.samples=100", {"data.name=digits"}, {"data.name=mnist", "data.dir=d"}},
    {"data.test_samples=100", {"data.name=cifar10"}, {"data.name=image_folder"}},
    {"data.seed=3", random_data, gpt},
    {"data.normalize=false", {"data.name=digits"}, random_data},
    {"data.image_size=64", {"data.name=image_folder"}, {"data.name=digits"}},
    {"data.shape=1x28x28", random_data, {"data.name=digits"}},
    {"data.outputs=3", random_data, {}},
    {"data.labels=true", joined(random_data, {"data.outputs=3"}), {}},
    {"data.noise=0", random_data, {}},
    {"data.context=64", gpt, {}},
    {"data.tokenizer=t", gpt, {}},
    {"data.vocabulary=100", {"data.name=tokens", "model.name=gpt"}, gpt},
    {"data.prefetch=2", {}, {"data.workers=0"}},
    {"data.drop_last=true", {}, servers},
    {"train.recompute=blocks", gpt, {"model.name=cnn"}},
    {"train.tf32=true", {"train.device=cuda"}, {}},
    {"train.winograd=false", {"model.name=cnn"}, {"model.name=mlp"}},
    {"train.loss_scale=1024", {"train.precision=fp16"}, {}},
    {"train.loss_scale_growth=3", {"train.precision=fp16"}, {"train.precision=bf16"}},
    {"train.loss_scale_backoff=0.25", {"train.precision=fp16"}, {}},
    {"train.loss_scale_growth_interval=10", {"train.precision=fp16"}, {}},
    {"train.preempt_signal=TERM", folder, {}},
    {"optim.momentum=0.9", {"optim.name=sgd"}, {"optim.name=adam"}},
    {"optim.dampening=0.5", {"optim.name=sgd", "optim.momentum=0.9"}, {"optim.name=muon", "optim.momentum=0.9"}},
    {"optim.nesterov=true", {"optim.name=muon", "optim.momentum=0.9"}, {"optim.name=sgd"}},
    {"optim.decay_one_dimensional=false", {"optim.weight_decay=0.1"}, {}},
    {"optim.beta1=0.8", {"optim.name=lamb"}, {"optim.name=sgd"}},
    {"optim.beta2=0.8", {"optim.name=adamw"}, {"optim.name=rmsprop"}},
    {"optim.eps=0.001", {"optim.name=adagrad"}, {"optim.name=lars"}},
    {"optim.alpha=0.9", {"optim.name=rmsprop"}, {}},
    {"optim.centered=true", {"optim.name=rmsprop"}, {}},
    {"optim.lr_decay=0.1", {"optim.name=adagrad"}, {}},
    {"optim.trust_coefficient=0.01", {"optim.name=lars"}, {}},
    {"optim.ns_steps=3", {"optim.name=muon"}, {}},
    {"optim.adjust_lr_fn=match_rms_adamw", {"optim.name=muon"}, {}},
    {"optim.offload=f", {}, {"optim.name=sgd"}},
    {"optim.schedule_unit=epochs", {"optim.schedule=step"}, {"optim.schedule=plateau"}},
    {"optim.schedule_length=9", {"optim.schedule=cosine"}, {"optim.schedule=step"}},
    {"optim.warmup_start=0.1", {"optim.warmup=5"}, {}},
    {"optim.end_factor=0.1", {"optim.schedule=linear"}, {"optim.schedule=onecycle"}},
    {"optim.gamma=0.1", {"optim.schedule=step"}, {}},
    {"optim.step_size=5", {"optim.schedule=step"}, {"optim.schedule=multistep", "optim.milestones=3"}},
    {"optim.milestones=3 6", {"optim.schedule=multistep"}, {}},
    {"optim.pct_start=0.5", {"optim.schedule=onecycle"}, {}},
    {"optim.div_factor=5", {"optim.schedule=onecycle"}, {}},
    {"optim.final_div_factor=5", {"optim.schedule=onecycle"}, {"optim.schedule=cosine"}},
    {"optim.factor=0.5", {"optim.schedule=plateau"}, {}},
    {"optim.patience=3", {"optim.schedule=plateau"}, {}},
    {"optim.threshold=0.1", {"optim.schedule=plateau"}, {}},
    {"optim.cooldown=1", {"optim.schedule=plateau"}, {}},
    {"optim.min_lr=0.0001", {"optim.schedule=plateau"}, {}},
    {"dist.staging_kb=64", {"dist.backend=shm"}, {"dist.backend=gloo"}},
    {"dist.bucket_mb=1", {}, servers},
    {"checkpoint.every_steps=5", folder, {}},
    {"checkpoint.keep=5", folder, {}},
    {"checkpoint.keep_best=true", folder, {}},
    {"checkpoint.background=false", folder, {}},
    {"checkpoint.timeout=5", folder, {}},
    {"checkpoint.resume=never", folder, {}},
    {"distill.teacher=mlp", {"train.task=distillation", "distill.weights=w"}, {}},
    {"distill.weights=w", {"train.task=distillation", "distill.teacher=mlp"}, {}},
    {"distill.hidden=8", distillation, of_resnet},
    {"distill.channels=8", of_resnet, distillation},
    {"distill.temperature=2", distillation, {}},
    {"distill.weight=0.9", distillation, {"train.task=classification"}},
    {"parallel.find_unused_parameters=true", {}, local_sgd},
    {"parallel.static_graph=true", {}, servers},
    {"parallel.delay_all_reduce_named_params=a", joined(local_sgd, {"parallel.start_localSGD_iter=5"}), local_sgd},
    {"parallel.param_to_hook_all_reduce=a", {"parallel.delay_all_reduce_named_params=b"}, {}},
    {"parallel.broadcast_buffers=false", {"model.name=cnn_bn"}, {"model.name=mlp"}},
    {"parallel.broadcast_buffers=false", joined(experts, {"train.quantization_aware=true"}),
     joined(experts, {"train.quantization_aware=true", "parallel.expert=2"})},
    {"parallel.ignored_parameters=a", {}, local_sgd},
    {"parallel.sync_batch_norm=true", {"model.name=resnet18"}, {"model.name=mlp"}},
    {"parallel.topk_fraction=0.1", {"parallel.hook=topk"}, {}},
    {"parallel.freeze_step=10", {"parallel.hook=onebit"}, {}},
    {"parallel.matrix_approximation_rank=2", {"parallel.hook=batched_powersgd"}, {"parallel.hook=fp16"}},
    {"parallel.start_powerSGD_iter=2", {"parallel.hook=powersgd+fp16"}, {}},
    {"parallel.use_error_feedback=false", {"parallel.hook=fp16+powersgd"}, {}},
    {"parallel.warm_start=false", {"parallel.hook=powersgd"}, {}},
    {"parallel.min_compression_rate=4", {"parallel.hook=powersgd"}, {"parallel.hook=batched_powersgd"}},
    {"parallel.local_sgd_period=5", local_sgd, {}},
    {"parallel.start_localSGD_iter=5", local_sgd, {}},
    {"parallel.outer_lr=0.7", local_sgd, {}},
    {"parallel.outer_momentum=0.9", local_sgd, servers},
    {"parallel.fragments=2", local_sgd, {}},
    {"parallel.fragment_sync_delay=1", local_sgd, {}},
    {"parallel.fragment_update_alpha=0.5", joined(local_sgd, {"parallel.fragment_sync_delay=1"}), local_sgd},
    {"parallel.servers=2", servers, {}},
    {"parallel.staleness=4", servers, local_sgd},
    {"parallel.round=50", servers, {}},
    {"parallel.devices=cpu:0 cpu:1", {}, local_sgd},
    {"parallel.split=fc1", {"parallel.devices=cpu:0 cpu:1"}, one_device},
    {"parallel.micro_batches=4", {"parallel.pipeline=2"}, one_device},
    {"parallel.schedule=gpipe", pipeline, {}},
    {"parallel.virtual_stages=2", joined(pipeline, {"parallel.schedule=interleaved"}), {}},
    {"parallel.balance=true", {}, joined(pipeline, {"parallel.schedule=interleaved", "parallel.virtual_stages=2"})},
    {"parallel.reshard_after_forward=false", {"parallel.zero=3"}, {"parallel.zero=2"}},
    {"parallel.shard_group=2", {"parallel.zero=2"}, {"parallel.zero=1"}},
    {"parallel.sequence=true", joined(gpt, {"parallel.tensor=2"}), gpt},
    {"train.check_placements=true", {"parallel.tensor=2"}, {}},
    {"parallel.expert=2", experts, gpt},
    {"tokenize.vocabulary=300", {}, {}, "tokenize"},
    {"generate.prompt=a", {}, {}, "generate"},
    {"generate.tokens=5", {}, {}, "generate"},
    {"generate.temperature=1", {}, {}, "generate"},
    {"generate.top_k=5", {}, {"generate.temperature=0"}, "generate"},
    {"generate.seed=5", {}, {"generate.temperature=0"}, "generate"},
    {"generate.quantized=q", {}, {}, "generate"},
    {"predict.input=i", {}, {}, "predict"},
    {"predict.output=o", {}, {}, "predict"},
    {"predict.quantized=q", {}, {}, "predict"},
    {"quantize.mode=static", {}, {}, "quantize"},
    {"quantize.file=q", {}, {}, "quantize"},
    {"quantize.samples=50", {"quantize.mode=static"}, {"quantize.mode=dynamic"}, "quantize"},
    {"profile.steps=5", {}, {}, "profile"},
    {"profile.warmup=2", {}, {}, "profile"},
    {"profile.trace=t", {}, {}, "profile"},
};

std::string key_of(const Example& example) {
  return example.setting.substr(0, example.setting.find('='));
}

bool is_of_command(const Example& example) {
  return example.command != "train";
}

}  // namespace

TEST_CASE("exactly the keys that need something have examples") {
  std::set<std::string> with_example;
  for (const auto& example : examples) with_example.insert(key_of(example));
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  for (const auto& setting : settings.all()) {
    INFO(setting.key);
    CHECK(needs_others(setting.key) == with_example.contains(setting.key));
    with_example.erase(setting.key);
  }
  CHECK(with_example.empty());
}

TEST_CASE("a setting is accepted where it has an effect") {
  for (const auto& example : examples) {
    INFO(example.setting);
    CHECK(error_of(joined(example.effective, {example.setting}), {}, example.command) == "no error");
    CHECK(error_of(example.effective, {example.setting}, example.command) == "no error");
  }
}

TEST_CASE("a setting without an effect is refused, with what it needs") {
  for (const auto& example : examples) {
    INFO(example.setting);
    if (is_of_command(example) && example.idle.empty()) continue;
    const auto key = key_of(example), value = example.setting.substr(key.size() + 1);
    const auto refusal = key + " = " + value + ": it has no effect with ";
    for (const auto& error : {error_of(joined({example.setting}, example.idle), {}, example.command),
                              error_of(example.idle, {example.setting}, example.command)}) {
      CHECK_THAT(error, Catch::Contains(refusal) && Catch::Contains("; it needs "));
    }
  }
}

TEST_CASE("a setting of another command is refused on the command line, and may be in the file") {
  for (const auto& example : examples) {
    if (!is_of_command(example)) continue;
    INFO(example.setting);
    CHECK_THAT(error_of({}, {example.setting}, "plan"), Catch::Contains(": it has no effect in ddprun-worker plan; "));
    CHECK(error_of({example.setting}, {}, "plan") == "no error");
    CHECK(error_of({example.setting}) == "no error");
  }
  CHECK(error_of({}, {"generate.tokens=5"}) ==
        "--generate.tokens: generate.tokens = 5: it has no effect in training; it needs ddprun-worker generate");
  CHECK(error_of({}, {"profile.warmup=2"}) ==
        "--profile.warmup: profile.warmup = 2: it has no effect in training; it needs ddprun-worker profile, or "
        "profile.steps");
  CHECK(error_of({}, {"profile.steps=5", "profile.warmup=2", "profile.trace=t"}) == "no error");
  CHECK(error_of({}, {"generate.quantized=q", "quantize.mode=static"}, "generate") == "no error");
}

TEST_CASE("a training job's file serves the other commands") {
  for (const std::string command : {"generate", "predict", "evaluate", "quantize", "profile", "plan", "tokenize"})
    CHECK(error_of(joined(gpt, {"checkpoint.dir=c", "checkpoint.keep_best=true", "optim.name=adamw",
                                "optim.weight_decay=0.1", "train.epochs=3", "metrics.file=m"}),
                   {"train.epochs=4"}, command) == "no error");
}

TEST_CASE("the message has the places of the setting and of what makes it idle") {
  CHECK(error_of({"optim.name=adam", "optim.momentum=0.9"}) ==
        "t.cfg:2: optim.momentum = 0.9: it has no effect with optim.name = adam (t.cfg:1); it needs optim.name = sgd, "
        "rmsprop, lars or muon");
  CHECK(error_of({}, {"checkpoint.keep=3"}) ==
        "--checkpoint.keep: checkpoint.keep = 3: it has no effect with checkpoint.dir = \"\" (default); it needs "
        "checkpoint.dir");
  CHECK(error_of({"parallel.split=fc1"}) ==
        "t.cfg:1: parallel.split = fc1: it has no effect with parallel.devices = \"\" (default) and "
        "parallel.pipeline = 1 (default); it needs several parallel.devices, or parallel.pipeline");
}

TEST_CASE("what an override makes idle in a file gets its default and one line") {
  const Job job({"optim.name=sgd", "optim.momentum=0.9", "optim.nesterov=true"}, {"optim.name=adam"});
  CHECK(job.notices ==
        Texts{"t.cfg:2: optim.momentum = 0.9: it has no effect with optim.name = adam (--optim.name); it needs "
              "optim.name = sgd, rmsprop, lars or muon",
              "t.cfg:3: optim.nesterov = true: it has no effect with optim.name = adam (--optim.name); it needs "
              "optim.name = sgd or muon"});
  CHECK(job.config.optim.momentum == 0);
  CHECK_FALSE(job.config.optim.nesterov);
  CHECK(error_of({"optim.name=sgd", "optim.momentum=0.9"}, {"optim.name=adam", "optim.momentum=0.5"}) ==
        "--optim.momentum: optim.momentum = 0.5: it has no effect with optim.name = adam (--optim.name); it needs "
        "optim.name = sgd, rmsprop, lars or muon");
  CHECK(error_of({"optim.name=adam"}, {"optim.momentum=0.5"}) ==
        "--optim.momentum: optim.momentum = 0.5: it has no effect with optim.name = adam (t.cfg:1); it needs "
        "optim.name = sgd, rmsprop, lars or muon");
}

TEST_CASE("what needs a setting that an override makes idle is idle too") {
  const Job job({"parallel.schedule=interleaved", "parallel.virtual_stages=2", "parallel.split=h.1 h.2 h.3",
                 "parallel.devices=cpu:0 cpu:1", "parallel.micro_batches=4", "model.name=gpt", "data.name=text"},
                {"parallel.devices="});
  CHECK(job.notices.size() == 4);
  CHECK(job.config.parallel.micro_batches == 0);
  CHECK(job.config.parallel.schedule == "1f1b");
  CHECK(job.config.parallel.virtual_stages == 1);
  CHECK(job.config.parallel.split.empty());
}

TEST_CASE("a mistake of the file stays one when an override is a second reason") {
  CHECK_THAT(error_of({"optim.nesterov=true"}, {"optim.momentum=0"}),
             Catch::StartsWith("t.cfg:1: optim.nesterov = true: it has no effect with optim.name = adam (default)"));
}

TEST_CASE("zero, false and nothing are no requests where they are the default") {
  CHECK(error_of({"optim.momentum=0", "optim.nesterov=false", "model.dropout=0", "data.flip=false", "model.layers=0",
                  "checkpoint.every_steps=0", "parallel.split=", "train.preempt_signal=none"}) == "no error");
  CHECK_THAT(error_of({"optim.gamma=0.1"}), Catch::Contains("it has no effect"));
  CHECK_THAT(error_of({"data.noise=0"}), Catch::Contains("it has no effect"));
}

TEST_CASE("a plugin's model and data set have the options that they are given") {
  CHECK(error_of({"model.name=plugins_model", "model.layers=4", "model.channels=8", "model.norm_first=false",
                  "parallel.sync_batch_norm=true", "train.winograd=false", "train.recompute=blocks"}) == "no error");
  CHECK(error_of({"data.name=plugins_data", "data.dir=d", "data.samples=9", "data.seed=3", "data.context=64"}) ==
        "no error");
  CHECK_THAT(error_of({"data.name=plugins_data", "data.shape=3"}), Catch::Contains("it needs data.name = random"));
}

TEST_CASE("the models with batch norm and those with blocks are the ones that the table names") {
  for (const auto name : nn::model_names()) {
    INFO(name);
    nn::ModelOptions options;
    if (name == "gpt") options = {.input = {8}, .input_dtype = DType::int64, .outputs = 256};
    options.channels = 4;
    Generator generator(0);
    const auto model = nn::make_model(name, options, generator);
    const bool is_gpt = name == "gpt";
    const Texts named{fmt::format("model.name={}", name), is_gpt ? "data.name=text" : "data.name=digits"};
    CHECK((error_of(named, {"parallel.sync_batch_norm=true"}) == "no error") == !model->named_buffers().empty());
    CHECK((error_of(named, {"parallel.broadcast_buffers=false"}) == "no error") == !model->named_buffers().empty());
    const auto users = model->parameter_users();
    const bool has_blocks =
        std::ranges::any_of(users, [](const auto& user) { return !user.second->module_names().empty(); });
    CHECK((error_of(named, {"train.recompute=blocks"}) == "no error") == has_blocks);
  }
}

TEST_CASE("the printed configuration of every ready one has the same values and nothing idle") {
  for (const auto& entry : std::filesystem::directory_iterator(DDPRUN_CONFIGS)) {
    if (entry.path().extension() != ".cfg") continue;
    INFO(entry.path());
    TrainConfig config, again;
    Settings settings, reread;
    bind(settings, config);
    apply(settings, read_config(entry.path()), Origin::file, {"launch"});
    CHECK(settle_needs(settings, config).empty());
    bind(reread, again);
    apply(reread, parse_config(effective_config(config, settings), "printed"), Origin::file);
    CHECK(settle_needs(reread, again).empty());
    for (const auto& setting : settings.all()) CHECK(setting.print() == reread.find(setting.key)->print());
  }
}
