// Batteries of /sys/class/power_supply (Documentation/ABI/testing/sysfs-class-power): `type` is "Battery",
// `scope` "Device" marks a mouse or a headset, energy_now is in microwatt-hours, charge_now in
// microampere-hours, voltage_now in microvolts. The gauge moves every few seconds to half a minute, in coarse
// steps, so a span has to be long.
#include <algorithm>
#include <utility>

#include "os/energy.h"
#include "os/energy_sysfs.h"

namespace isthmus {
namespace {

constexpr double kJoulesPerMicrowattHour = 3600e-6;

struct Battery {
  std::string dir, name;
  bool by_charge = false;
  double last_level = 0;  // microwatt-hours, or microampere-hours when by_charge
  double last_volts = 0;
};

Result<double> read_level(const Battery& battery) {
  ISTHMUS_ASSIGN_OR_RETURN(
      const uint64_t value,
      sysfs::read_uint(battery.dir + (battery.by_charge ? "/charge_now" : "/energy_now")));
  return static_cast<double>(value);
}

Result<double> read_volts(const Battery& battery) {
  if (!battery.by_charge) return 0.0;
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t microvolts, sysfs::read_uint(battery.dir + "/voltage_now"));
  return 1e-6 * static_cast<double>(microvolts);
}

class BatteryMeter final : public Meter {
 public:
  explicit BatteryMeter(std::vector<Battery> batteries) : batteries_(std::move(batteries)) {}

  EnergySource source() const override { return EnergySource::kBattery; }
  double min_span_seconds() const override { return 60; }

  std::string description() const override {
    std::string out;
    for (const Battery& battery : batteries_) out += (out.empty() ? "" : " + ") + battery.name;
    return out + ", whole machine";
  }

  Result<double> read_joules() override {
    for (Battery& battery : batteries_) {
      const Status status = update(battery);
      if (status.code() == Code::kFailedPrecondition) return status;
      if (!status.ok()) return unavailable("battery gauge lost: " + status.message());
    }
    return joules_;
  }

 private:
  // A battery that charges while another one discharges would hide what the machine draws.
  Status update(Battery& battery) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::string status, sysfs::read_text(battery.dir + "/status"));
    if (status == "Charging") {
      return failed_precondition(battery.name +
                                 " is charging: its gauge does not show what the machine uses");
    }
    ISTHMUS_ASSIGN_OR_RETURN(const double level, read_level(battery));
    ISTHMUS_ASSIGN_OR_RETURN(const double volts, read_volts(battery));
    const double used = battery.last_level - level;
    if (used < 0) return failed_precondition(battery.name + ": the gauge rose, so it was charged in between");
    const double micro_wh = battery.by_charge ? used * 0.5 * (volts + battery.last_volts) : used;
    joules_ += micro_wh * kJoulesPerMicrowattHour;
    battery.last_level = level;
    battery.last_volts = volts;
    return ok_status();
  }

  std::vector<Battery> batteries_;
  double joules_ = 0;
};

bool is_system_battery(const std::string& dir) {
  const auto type = sysfs::read_text(dir + "/type");
  if (!type.ok() || *type != "Battery") return false;
  const auto scope = sysfs::read_text(dir + "/scope");
  return !scope.ok() || *scope != "Device";
}

Result<Battery> open_battery(const std::string& dir, const std::string& name) {
  Battery battery{.dir = dir, .name = name};
  auto level = read_level(battery);
  if (level.status().code() == Code::kNotFound) {
    battery.by_charge = true;
    level = read_level(battery);
  }
  if (!level.ok()) return level.status();
  battery.last_level = *level;
  ISTHMUS_ASSIGN_OR_RETURN(battery.last_volts, read_volts(battery));
  return battery;
}

}  // namespace

Result<std::unique_ptr<Meter>> make_battery_meter(const EnergyEnv& env) {
  const std::string root = env.sysfs + "/class/power_supply";
  ISTHMUS_ASSIGN_OR_RETURN(const auto entries, sysfs::list(root));
  std::vector<Battery> batteries;
  bool discharging = false;
  for (const std::string& entry : entries) {
    const std::string dir = sysfs::join(root, entry);
    if (!is_system_battery(dir)) continue;
    ISTHMUS_ASSIGN_OR_RETURN(Battery battery, open_battery(dir, entry));
    ISTHMUS_ASSIGN_OR_RETURN(const std::string status, sysfs::read_text(dir + "/status"));
    discharging = discharging || status == "Discharging";
    batteries.push_back(std::move(battery));
  }
  if (batteries.empty()) return not_found(root + ": no battery");
  if (!discharging) return failed_precondition("no battery is discharging: the machine runs from the mains");
  return std::unique_ptr<Meter>(std::make_unique<BatteryMeter>(std::move(batteries)));
}

}  // namespace isthmus
