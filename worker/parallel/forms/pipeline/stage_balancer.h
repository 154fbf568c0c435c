#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::pipeline {

// Moves the cuts of a pipeline whose ranks differ in speed, or do not have the speed for which it was cut: from the
// measured times of stages, one layer at a time moves to a neighbouring stage.
//
// A rank's slowness is the time of its stage divided by the cost of its layers. A move has to promise that the slowest
// stage takes 5 % less, in several measurements in a row; one that undoes the last move at the same cut needs twice as
// many as that one did, so that moves become rare whatever was measured. After a move the moved layer's cost is
// computed from the times of both stages: a wrong estimate does not send it back.
//
// Pure: the same measurements give the same decisions at all ranks.
class StageBalancer {
 public:
  // costs: that of each layer, in any unit; cuts: the first layer of each stage but the first. REQUIRES: costs above 0,
  // cuts ascending, each stage has a layer
  StageBalancer(std::vector<double> costs, std::vector<std::size_t> cuts);

  struct Decision {
    std::vector<std::size_t> cuts;
    std::size_t layer = 0;         // the one that moves
    std::size_t from = 0, to = 0;  // stages
    std::string reason;            // with the measured times
  };
  // seconds: the average time of each stage in a step, with the present cuts. Returns none if the cuts stay.
  std::optional<Decision> observe(const std::vector<double>& seconds);

  const std::vector<std::size_t>& cuts() const { return cuts_; }

 private:
  struct Move {
    std::size_t cut = 0;   // the index of the cut
    bool forward = false;  // the layer goes to the stage after the cut
    bool operator==(const Move&) const = default;
  };
  struct Prediction {
    Move move;
    double slowest = 0;  // seconds
  };
  // A move whose effect has not been measured.
  struct Made {
    Move move;
    double cost_from = 0, cost_to = 0;        // before it
    double seconds_from = 0, seconds_to = 0;  // before it
  };
  // The last move at a cut.
  struct History {
    std::optional<Move> last;
    int agreement = 0;  // the number of measurements that it needed
  };

  double cost_of(const std::vector<std::size_t>& cuts, std::size_t stage) const;
  std::size_t stage_of(const Move& move, bool giving) const { return move.cut + (giving == move.forward ? 0 : 1); }
  std::size_t layer_of(const Move& move) const { return cuts_[move.cut] - (move.forward ? 1 : 0); }
  std::vector<std::size_t> after(const Move& move) const;
  bool is_possible(const Move& move) const;
  double slowest(const std::vector<std::size_t>& cuts) const;
  std::optional<Prediction> best_move() const;
  int needed_for(const Move& move) const;
  void note(const std::vector<double>& seconds);
  void learn_cost(const std::vector<double>& seconds);
  Decision make(const Prediction& prediction);

  std::vector<double> costs_;
  std::vector<std::size_t> cuts_;
  std::vector<double> seconds_;     // smoothed, with the present cuts; empty if not measured yet
  std::vector<History> histories_;  // by cut
  std::optional<Move> candidate_;
  int agreeing_ = 0;  // the number of measurements after which candidate_ was the best move
  std::optional<Made> made_;
};

}  // namespace ddprun::pipeline
