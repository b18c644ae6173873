#include "os/energy.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "os/energy_sysfs.h"

namespace isthmus {
namespace {

class ModelMeter final : public Meter {
 public:
  ModelMeter(EnergyEnv env, PowerModel model)
      : env_(std::move(env)),
        model_(model),
        start_wall_(sysfs::wall_seconds(env_)),
        start_cpu_(sysfs::cpu_seconds(env_)) {}

  EnergySource source() const override { return EnergySource::kModel; }
  double min_span_seconds() const override { return 0.1; }

  std::string description() const override {
    const auto watts = [](double w) {
      std::string text = std::to_string(w);
      return text.substr(0, text.find('.') + 2);
    };
    return "assumed " + watts(model_.idle_watts) + " W idle + " + watts(model_.active_core_watts) +
           " W per busy core";
  }

  Result<double> read_joules() override {
    return model_.idle_watts * (sysfs::wall_seconds(env_) - start_wall_) +
           model_.active_core_watts * (sysfs::cpu_seconds(env_) - start_cpu_);
  }

 private:
  EnergyEnv env_;
  PowerModel model_;
  double start_wall_, start_cpu_;
};

}  // namespace

std::unique_ptr<Meter> make_model_meter(const EnergyEnv& env, const PowerModel& model) {
  return std::make_unique<ModelMeter>(env, model);
}

MeterChoice choose_meter(const EnergyEnv& env, const PowerModel& model) {
  MeterChoice out;
  for (const auto make : {make_rapl_meter, make_battery_meter}) {
    auto meter = make(env);
    if (meter.ok()) {
      out.meter = std::move(meter).value();
      return out;
    }
    out.passed_over.push_back(meter.status().to_string());
  }
  out.meter = make_model_meter(env, model);
  return out;
}

Result<double> measure_idle_watts(Meter& meter, double seconds, const EnergyEnv& env,
                                  const std::function<void(double)>& sleep) {
  if (!(seconds > 0)) return invalid_argument("the idle span must be longer than 0 seconds");
  ISTHMUS_ASSIGN_OR_RETURN(EnergySpan span, EnergySpan::start(meter, 0, env));
  if (sleep) {
    sleep(seconds);
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  ISTHMUS_ASSIGN_OR_RETURN(const Energy energy, span.finish());
  if (!(energy.seconds > 0)) return failed_precondition("the clock did not move during the idle span");
  return energy.gross_joules / energy.seconds;
}

EnergySpan::EnergySpan(Meter& meter, double idle_watts, EnergyEnv env, double start_joules,
                       double start_seconds)
    : meter_(&meter),
      env_(std::move(env)),
      idle_watts_(idle_watts),
      start_joules_(start_joules),
      start_seconds_(start_seconds) {}

Result<EnergySpan> EnergySpan::start(Meter& meter, double idle_watts, const EnergyEnv& env) {
  ISTHMUS_ASSIGN_OR_RETURN(const double joules, meter.read_joules());
  return EnergySpan(meter, idle_watts, env, joules, sysfs::wall_seconds(env));
}

Result<Energy> EnergySpan::finish() {
  ISTHMUS_ASSIGN_OR_RETURN(const double joules, meter_->read_joules());
  Energy out;
  out.seconds = sysfs::wall_seconds(env_) - start_seconds_;
  out.gross_joules = joules - start_joules_;
  out.idle_watts = idle_watts_;
  out.net_joules = std::max(0.0, out.gross_joules - idle_watts_ * out.seconds);
  out.source = meter_->source();
  out.long_enough = out.seconds >= meter_->min_span_seconds();
  return out;
}

}  // namespace isthmus
