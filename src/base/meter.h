// Energy: the interface through which every figure of J/token is measured.
//
// A Meter counts joules that the machine has used since the meter was made; a difference of two readings is
// the gross energy of what ran in between. Every figure carries its source, because a counter in the
// processor, a battery gauge and a formula are not the same kind of truth. A Meter is not thread-safe; it is
// owned by whoever measures. Errors: kUnavailable when a source vanishes or stops counting,
// kFailedPrecondition when a reading would be meaningless (the charger was plugged in, the counter may have
// wrapped twice).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace isthmus {

enum class EnergySource {
  kRapl,     // the processor's own counters (Linux powercap)
  kBattery,  // the battery's gauge, while discharging
  kModel,    // watts assumed per core: comparable on one machine, not a measurement
};

/// "rapl", "battery", "model": as printed and as used in JSON.
constexpr std::string_view energy_source_name(EnergySource source) {
  switch (source) {
    case EnergySource::kRapl:
      return "rapl";
    case EnergySource::kBattery:
      return "battery";
    case EnergySource::kModel:
      return "model";
  }
  return "unknown";
}

class Meter {
 public:
  virtual ~Meter() = default;
  virtual EnergySource source() const = 0;
  /// What is counted, in words: "package-0 + dram".
  virtual std::string description() const = 0;
  /// Joules since the meter was made, never falling.
  virtual Result<double> read_joules() = 0;
  /// A span shorter than this (seconds) says little, because the source is updated that rarely.
  virtual double min_span_seconds() const = 0;
};

/// The energy of one span of work.
struct Energy {
  double gross_joules = 0;
  double net_joules = 0;  // gross - idle_watts * seconds, not below 0
  double idle_watts = 0;  // the baseline that was subtracted
  double seconds = 0;
  EnergySource source = EnergySource::kModel;
  bool long_enough = false;  // seconds >= the meter's min_span_seconds()
};

}  // namespace isthmus
