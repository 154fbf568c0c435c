#include "worker/optim/lr_schedule.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/config/keys.h"

namespace ddprun::trainer {

void bind_optim(Settings& s, TrainConfig::Optim& o) {
  s.add("optim.name", o.name, {.help = "optimizer", .choices = texts(optim::optimizer_names())});
  s.add("optim.lr", o.lr, {.help = "learning rate", .min = 0});
  s.add("optim.momentum", o.momentum, {.help = "momentum of sgd, rmsprop, lars and muon", .min = 0, .max = 1});
  s.add("optim.dampening", o.dampening,
        {.help = "share of the gradient that does not enter the momentum of sgd, from its second step on",
         .min = 0,
         .max = 1});
  s.add("optim.nesterov", o.nesterov, {.help = "Nesterov's variant of the momentum of sgd and muon"});
  s.add(
      "optim.weight_decay", o.weight_decay,
      {.help = "sgd, adam, rmsprop, adagrad, lars: factor of the parameter that is added to its gradient; adamw, muon: "
               "the parameter shrinks by learning rate x this, apart from the gradient; lamb: factor of the parameter "
               "that is added to its update",
       .min = 0});
  s.add("optim.decay_one_dimensional", o.decay_one_dimensional,
        {.help = "optim.weight_decay applies to biases and to the weights of norms too, which have one dimension"});
  s.add("optim.beta1", o.beta1,
        {.help = "decay rate of the mean of gradients (adam, adamw, lamb; muon: of parameters that are not matrices)",
         .min = 0,
         .max = 1});
  s.add("optim.beta2", o.beta2,
        {.help = "decay rate of the mean of squared gradients (as optim.beta1)", .min = 0, .max = 1});
  s.add(
      "optim.eps", o.eps,
      {.help = "number that is added to the denominator (adam, adamw, rmsprop, adagrad, lamb); muon: the least norm by "
               "which a matrix is divided as well",
       .min = 0});
  s.add("optim.alpha", o.alpha, {.help = "decay rate of the mean of squared gradients (rmsprop)", .min = 0, .max = 1});
  s.add("optim.centered", o.centered, {.help = "rmsprop divides by the deviation of the gradients from their mean"});
  s.add("optim.lr_decay", o.lr_decay,
        {.help = "adagrad divides the learning rate by 1 + (step - 1) x this, counted from step 1", .min = 0});
  s.add("optim.trust_coefficient", o.trust_coefficient,
        {.help = "lars: ratio of the update's norm to the parameter's, before the learning rate", .min = 0});
  s.add("optim.ns_steps", o.ns_steps,
        {.help = "steps of the Newton-Schulz iteration that makes an update orthogonal (muon)", .min = 0, .max = 99});
  s.add("optim.adjust_lr_fn", o.adjust_lr_fn,
        {.help = "how muon multiplies the learning rate of a matrix: original, by sqrt(max(1, rows / columns)); "
                 "match_rms_adamw, by 0.2 sqrt(max(rows, columns)), for learning rates of adamw",
         .choices = {"original", "match_rms_adamw"}});
  s.add(
      "optim.offload", o.offload,
      {.help = "folder on a disk in which files hold the optimizer's state: the kernel writes out and reads back what "
               "does not fit into memory; empty: memory",
       .scope = Scope::process});
  s.add("optim.clip_norm", o.clip_norm,
        {.help = "scales the gradients of all parameters down to this Euclidean norm, as clip_grad_norm_; 0: not",
         .min = 0});
  s.add("optim.clip_value", o.clip_value,
        {.help = "limits each element of a gradient to this magnitude, as clip_grad_value_; 0: not", .min = 0});
  s.add("optim.skip_outliers", o.skip_outliers,
        {.help = "a step is skipped at all ranks if the norm of its gradients is above so many times the median of the "
                 "last 100 steps; 0: none",
         .min = 0});
}

// Names are PyTorch's where it has the same.
void bind_schedule(Settings& s, TrainConfig::Optim& o) {
  s.add("optim.schedule", o.lr_schedule.name,
        {.help = "learning rate over the time, as torch.optim.lr_scheduler has it: StepLR, MultiStepLR, "
                 "CosineAnnealingLR, LinearLR, OneCycleLR; plateau: ReduceLROnPlateau of the loss of evaluations; "
                 "inverse_sqrt: optim.lr x sqrt(warmup / time)",
         .choices = optim::LrSchedule::names()});
  s.add("optim.schedule_unit", o.schedule_unit,
        {.help = "what the schedule counts; epochs: the rate stays the same within an epoch",
         .choices = {"steps", "epochs"}});
  s.add("optim.schedule_length", o.schedule_length,
        {.help = "where cosine, linear and onecycle end, their warm-up included; 0: with the run, so that another "
                 "train.epochs or train.max_steps is another curve",
         .unit = "steps or epochs",
         .min = 0});
  s.add("optim.warmup", o.lr_schedule.warmup,
        {.help = "time in which the learning rate rises linearly to that with which the schedule begins; 0: none",
         .unit = "steps or epochs",
         .min = 0});
  s.add("optim.warmup_start", o.lr_schedule.warmup_start,
        {.help = "the warm-up begins with this factor of the rate with which it ends", .min = 0, .max = 1});
  s.add("optim.end_factor", o.lr_schedule.end_factor,
        {.help = "factor of optim.lr with which cosine and linear end", .min = 0, .max = 1});
  s.add("optim.gamma", o.lr_schedule.gamma, {.help = "factor of each decay of step and multistep", .min = 0, .max = 1});
  s.add("optim.step_size", o.lr_schedule.step_size,
        {.help = "time between two decays of step", .unit = "steps or epochs", .min = 1});
  s.add("optim.milestones", o.milestones,
        {.help = "when multistep decays, such as 30 60 80, ascending, counted from the end of the warm-up"});
  s.add("optim.pct_start", o.lr_schedule.pct_start,
        {.help = "share of onecycle in which the learning rate rises to optim.lr", .min = 0, .max = 1});
  s.add("optim.div_factor", o.lr_schedule.div_factor,
        {.help = "onecycle begins with optim.lr divided by this", .min = 1});
  s.add("optim.final_div_factor", o.lr_schedule.final_div_factor,
        {.help = "onecycle ends with its beginning divided by this", .min = 1});
  s.add("optim.factor", o.plateau.factor, {.help = "factor of each reduction of plateau", .min = 0, .max = 0.999});
  s.add("optim.patience", o.plateau.patience,
        {.help = "evaluations without an improvement that plateau tolerates", .unit = "evaluations", .min = 0});
  s.add("optim.threshold", o.plateau.threshold,
        {.help = "plateau counts a loss below the best x (1 - this) as an improvement", .min = 0, .max = 1});
  s.add("optim.cooldown", o.plateau.cooldown,
        {.help = "evaluations after a reduction that plateau does not count", .unit = "evaluations", .min = 0});
  s.add("optim.min_lr", o.plateau.min_lr, {.help = "plateau reduces the learning rate to no less than this", .min = 0});
}

}  // namespace ddprun::trainer
