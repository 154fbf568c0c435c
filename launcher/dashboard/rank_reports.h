#pragma once

#include <array>

#include "launcher/dashboard/job_view.h"
#include "rendezvous/progress/training_record.h"
#include "rendezvous/rendezvous.h"

// What ranks and nodes report of themselves, as the view of a job shows it, and whether that differs from what it shows
// already: what changes with every step or second is rounded, so that clients are not sent it again and again. Pure.
namespace ddprun::dashboard {

RankView::State state_of(const WorkerReport& worker);

// Rounds a lateness to two digits; less than 10 us becomes 0.
double to_two_digits(double lateness);

// RankView::shares, to percent.
std::array<double, 3> shares_of(const TrainingRecord& record);
std::array<double, 3> shares_of(const TrainingReport& report);

// Unknown numbers are equal to each other. The versions do not count.
bool same(const RankView& one, const RankView& other);
bool same(const CollectiveView& one, const CollectiveView& other);
// A change of less than a percent of the machine is none, since with many nodes some change at any time.
bool same(const NodeUsage& one, const NodeUsage& other);

}  // namespace ddprun::dashboard
