#pragma once

#include <array>

#include "launcher/dashboard/job_view.h"
#include "rendezvous/node_report.h"
#include "rendezvous/progress/training_record.h"

// These functions turn what ranks and nodes report of themselves into what the view of a job shows, and say whether
// that differs from what it shows already: numbers that change with every step or second are rounded, so that clients
// are not sent them again and again. Pure.
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
