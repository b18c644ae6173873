// The five figures of a run, for people and as JSON.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/meter.h"
#include "engine/generate.h"

namespace isthmus::cli {

using SteadyClock = std::chrono::steady_clock;
inline double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

/// Value at quantile q (0 to 1) by linear interpolation; 0 when empty.
double quantile(std::vector<double> values, double q);

/// One line: "12 + 34 tokens, TTFT 45 ms, TBT p50 5.1 ms, p99 6.0 ms, 196 tokens/s, 0.12 J/token (model),
/// peak 180 MB".
std::string figures_line(const RunFigures& figures, const std::optional<Energy>& energy);
nlohmann::ordered_json figures_json(const RunFigures& figures, const std::optional<Energy>& energy);

}  // namespace isthmus::cli
