// Zones of the Linux powercap tree (Documentation/power/powercap/powercap.rst): a zone directory holds
// `name`, `energy_uj` (microjoules, counts up) and `max_energy_range_uj` (where it wraps to 0). Zone
// intel-rapl:N is a package or the whole platform ("psys", which contains the packages and is therefore left
// out); its child intel-rapl:N:M is a part. Of the parts only "dram" lies outside the package counter. The
// twin tree intel-rapl-mmio:* repeats the packages and is left out by its name.
#include <utility>

#include "os/energy.h"
#include "os/energy_sysfs.h"

namespace isthmus {
namespace {

// No package draws more for minutes; with the counter's range (262 kJ as a rule, so 11 minutes) it bounds the
// time between two readings.
constexpr double kMaxZoneWatts = 400.0;

struct Zone {
  std::string dir, name;
  uint64_t range_uj = 0;
  uint64_t last_uj = 0;
  double total_uj = 0;
};

class RaplMeter final : public Meter {
 public:
  RaplMeter(std::vector<Zone> zones, EnergyEnv env)
      : zones_(std::move(zones)), env_(std::move(env)), last_seconds_(sysfs::wall_seconds(env_)) {}

  EnergySource source() const override { return EnergySource::kRapl; }
  double min_span_seconds() const override { return 0.1; }

  std::string description() const override {
    std::string out;
    for (const Zone& zone : zones_) out += (out.empty() ? "" : " + ") + zone.name;
    return out;
  }

  Result<double> read_joules() override {
    ISTHMUS_RETURN_IF_ERROR(lost_);
    const double now = sysfs::wall_seconds(env_);
    double sum = 0;
    for (Zone& zone : zones_) {
      if ((now - last_seconds_) * kMaxZoneWatts * 1e6 > static_cast<double>(zone.range_uj)) {
        // The meter has lost count for good: a later sum would lack energy without saying so.
        lost_ = failed_precondition(zone.name +
                                    ": too long since the last reading, the counter may have wrapped "
                                    "more than once; make a new meter");
        return lost_;
      }
      ISTHMUS_RETURN_IF_ERROR(update(zone));
      sum += zone.total_uj;
    }
    last_seconds_ = now;
    return sum * 1e-6;
  }

 private:
  static Status update(Zone& zone) {
    const auto read = sysfs::read_uint(zone.dir + "/energy_uj");
    if (!read.ok()) return unavailable("energy counter lost: " + read.status().message());
    const uint64_t delta =
        *read >= zone.last_uj ? *read - zone.last_uj : zone.range_uj - zone.last_uj + *read;
    zone.total_uj += static_cast<double>(delta);
    zone.last_uj = *read;
    return ok_status();
  }

  std::vector<Zone> zones_;
  EnergyEnv env_;
  double last_seconds_;
  Status lost_;
};

bool is_zone_dir(const std::string& entry) { return entry.rfind("intel-rapl:", 0) == 0; }

bool counts(const std::string& zone_name) {
  return zone_name.rfind("package", 0) == 0 || zone_name == "dram";
}

Result<Zone> open_zone(const std::string& dir, std::string name) {
  Zone zone{.dir = dir, .name = std::move(name)};
  ISTHMUS_ASSIGN_OR_RETURN(zone.range_uj, sysfs::read_uint(dir + "/max_energy_range_uj"));
  ISTHMUS_ASSIGN_OR_RETURN(zone.last_uj, sysfs::read_uint(dir + "/energy_uj"));
  if (zone.range_uj == 0 || zone.last_uj > zone.range_uj) {
    return unavailable(dir + ": the counter lies outside its own range");
  }
  return zone;
}

}  // namespace

Result<std::unique_ptr<Meter>> make_rapl_meter(const EnergyEnv& env) {
  const std::string root = env.sysfs + "/class/powercap";
  ISTHMUS_ASSIGN_OR_RETURN(const auto entries, sysfs::list(root));
  std::vector<Zone> zones;
  bool package = false;
  for (const std::string& entry : entries) {
    if (!is_zone_dir(entry)) continue;
    const std::string dir = sysfs::join(root, entry);
    ISTHMUS_ASSIGN_OR_RETURN(std::string name, sysfs::read_text(dir + "/name"));
    if (!counts(name)) continue;
    package = package || name != "dram";
    ISTHMUS_ASSIGN_OR_RETURN(Zone zone, open_zone(dir, std::move(name)));
    zones.push_back(std::move(zone));
  }
  if (!package) return not_found(root + ": no package zone");
  return std::unique_ptr<Meter>(std::make_unique<RaplMeter>(std::move(zones), env));
}

}  // namespace isthmus
