#pragma once

#include <string>

#include "launcher/dashboard/job_view.h"

namespace ddprun::dashboard {

// Formats of https://prometheus.io/docs/instrumenting/exposition_formats (text 0.0.4) and
// https://github.com/prometheus/OpenMetrics (1.0.0).
enum class MetricsFormat { prometheus, openmetrics };

// The format that a client's Accept header asks for; Prometheus' own without such a header.
MetricsFormat metrics_format(std::string_view accept);
// The value of the Content-Type header.
std::string_view content_type(MetricsFormat format);

// The view's numbers as metrics, in base units. What is not known is left out.
std::string metrics_text(const JobView& view, MetricsFormat format);

}  // namespace ddprun::dashboard
