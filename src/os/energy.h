// The energy meters of a Linux machine, best first: powercap counters (RAPL), battery gauge, documented
// model.
//
// Each factory looks at one source below a sysfs root (a parameter, so that tests can fake the tree) and
// returns kNotFound when the machine has none, kIo when it may not be read. choose_meter() takes the best
// that works and says why it passed over the others. Times come from the caller's clock. Nothing here is
// thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/meter.h"
#include "base/status.h"

namespace isthmus {

/// Where a meter reads its files and its times; the defaults are the real machine.
struct EnergyEnv {
  std::string sysfs = "/sys";
  std::function<double()> wall_seconds;  // monotonic; empty = the system's
  std::function<double()> cpu_seconds;   // CPU time of this process, all threads; empty = the system's
};

/// The model used where nothing can be measured: power = idle + active_core * (cores kept busy by this
/// process). The defaults stand for a laptop of the x86 class at full vector load; they make runs on one
/// machine comparable with each other and are never reported as measured.
struct PowerModel {
  double idle_watts = 4.0;
  double active_core_watts = 8.0;
};

/// Counters of /sys/class/powercap/intel-rapl:* (AMD uses the same names): every package zone, and its dram
/// zone where there is one. Wrapping counters are unwrapped by max_energy_range_uj.
Result<std::unique_ptr<Meter>> make_rapl_meter(const EnergyEnv& env);

/// Gauges of /sys/class/power_supply: energy_now, or charge_now times voltage_now; all system batteries
/// together. kFailedPrecondition unless at least one of them is discharging.
Result<std::unique_ptr<Meter>> make_battery_meter(const EnergyEnv& env);

/// Never fails; `model` as documented above.
std::unique_ptr<Meter> make_model_meter(const EnergyEnv& env, const PowerModel& model);

struct MeterChoice {
  std::unique_ptr<Meter> meter;
  std::vector<std::string> passed_over;  // one sentence for each better source that could not be used
};
MeterChoice choose_meter(const EnergyEnv& env = {}, const PowerModel& model = {});

/// Average watts over `seconds` of doing nothing; `sleep` waits that long. Take it before the run it is for.
Result<double> measure_idle_watts(Meter& meter, double seconds, const EnergyEnv& env = {},
                                  const std::function<void(double)>& sleep = {});

/// Measures from its start to finish(). The meter must outlive it.
class EnergySpan {
 public:
  static Result<EnergySpan> start(Meter& meter, double idle_watts, const EnergyEnv& env = {});
  /// Energy since start(); may be called again for a longer span.
  Result<Energy> finish();

 private:
  EnergySpan(Meter& meter, double idle_watts, EnergyEnv env, double start_joules, double start_seconds);
  Meter* meter_;
  EnergyEnv env_;
  double idle_watts_, start_joules_, start_seconds_;
};

}  // namespace isthmus
