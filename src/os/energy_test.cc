#include "os/energy.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace isthmus {
namespace {

namespace fs = std::filesystem;

// A sysfs tree of our own making, and clocks that only the test moves.
class EnergyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    umask_ = umask(022);  // nobody must be able to look into the tree
    std::string pattern = (fs::temp_directory_path() / "energy_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    fs::permissions(root_, fs::perms{0755});
    env_.sysfs = root_.string();
    env_.wall_seconds = [this] { return wall_; };
    env_.cpu_seconds = [this] { return cpu_; };
  }
  void TearDown() override {
    fs::remove_all(root_);
    umask(umask_);
  }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  void add_zone(const std::string& zone, const std::string& name, uint64_t uj, uint64_t range) {
    put("class/powercap/" + zone + "/name", name);
    put("class/powercap/" + zone + "/max_energy_range_uj", std::to_string(range));
    set_zone(zone, uj);
  }
  void set_zone(const std::string& zone, uint64_t uj) {
    put("class/powercap/" + zone + "/energy_uj", std::to_string(uj));
  }
  std::string battery(const std::string& file) { return "class/power_supply/BAT0/" + file; }
  void add_energy_battery(const std::string& status) {
    put(battery("type"), "Battery");
    put(battery("status"), status);
    put(battery("energy_now"), "50000000");
  }

  fs::path root_;
  mode_t umask_ = 0;
  EnergyEnv env_;
  double wall_ = 100, cpu_ = 7;
};

constexpr uint64_t kRange = 262143328850;

TEST_F(EnergyTest, RaplSumsPackagesAndDramOnly) {
  add_zone("intel-rapl:0", "package-0", 1000000, kRange);
  add_zone("intel-rapl:0:0", "core", 5, kRange);
  add_zone("intel-rapl:0:1", "dram", 500000, kRange);
  add_zone("intel-rapl:1", "psys", 9, kRange);
  add_zone("intel-rapl:2", "package-1", 0, kRange);
  add_zone("intel-rapl-mmio:0", "package-0", 0, kRange);
  auto meter = make_rapl_meter(env_);
  ASSERT_TRUE(meter.ok()) << meter.status().to_string();
  EXPECT_EQ((*meter)->source(), EnergySource::kRapl);
  EXPECT_EQ((*meter)->description(), "package-0 + dram + package-1");
  EXPECT_DOUBLE_EQ(*(*meter)->read_joules(), 0);
  set_zone("intel-rapl:0", 4000000);
  set_zone("intel-rapl:0:0", 1000005);
  set_zone("intel-rapl:0:1", 1500000);
  set_zone("intel-rapl:1", 90000009);
  set_zone("intel-rapl:2", 250000);
  set_zone("intel-rapl-mmio:0", 7000000);
  wall_ += 1;
  EXPECT_DOUBLE_EQ(*(*meter)->read_joules(), 3.0 + 1.0 + 0.25);
}

TEST_F(EnergyTest, RaplCounterWrapsOnceAndAgain) {
  add_zone("intel-rapl:0", "package-0", kRange - 1000000, kRange);
  auto meter = make_rapl_meter(env_);
  ASSERT_TRUE(meter.ok());
  for (int turn = 1; turn <= 3; ++turn) {
    set_zone("intel-rapl:0", 2000000);
    wall_ += 60;
    const double expected = 3.0 + (turn - 1) * (static_cast<double>(kRange) * 1e-6);
    EXPECT_NEAR(*(*meter)->read_joules(), expected, 1e-3) << turn;
    set_zone("intel-rapl:0", kRange - 1000000);
    wall_ += 60;
    EXPECT_NEAR(*(*meter)->read_joules(), expected + static_cast<double>(kRange) * 1e-6 - 3.0, 1e-3);
  }
}

TEST_F(EnergyTest, RaplRefusesASpanInWhichTheCounterMayHaveWrappedTwice) {
  add_zone("intel-rapl:0", "package-0", 0, 10000000);  // 10 J: full within 25 ms at the bound
  auto meter = make_rapl_meter(env_);
  ASSERT_TRUE(meter.ok());
  wall_ += 0.02;
  set_zone("intel-rapl:0", 5000000);
  EXPECT_DOUBLE_EQ(*(*meter)->read_joules(), 5.0);
  wall_ += 3600;
  EXPECT_EQ((*meter)->read_joules().status().code(), Code::kFailedPrecondition);
  wall_ += 0.01;  // and it stays failed: the lost joules cannot come back
  EXPECT_EQ((*meter)->read_joules().status().code(), Code::kFailedPrecondition);
}

TEST_F(EnergyTest, RaplWithoutPermissionNamesTheFile) {
  add_zone("intel-rapl:0", "package-0", 0, kRange);
  fs::permissions(root_ / "class/powercap/intel-rapl:0/energy_uj", fs::perms::none);
  // Root may read everything; file checks of this thread alone become those of nobody.
  const bool root = geteuid() == 0;
  if (root) setfsuid(65534);
  const auto meter = make_rapl_meter(env_);
  const MeterChoice choice = choose_meter(env_);
  if (root) setfsuid(0);
  ASSERT_FALSE(meter.ok());
  EXPECT_EQ(meter.status().code(), Code::kIo);
  EXPECT_NE(meter.status().message().find("intel-rapl:0/energy_uj"), std::string::npos);
  EXPECT_EQ(choice.meter->source(), EnergySource::kModel);
  ASSERT_EQ(choice.passed_over.size(), 2u);
  EXPECT_NE(choice.passed_over[0].find("energy_uj"), std::string::npos) << choice.passed_over[0];
}

TEST_F(EnergyTest, RaplZoneThatDisappears) {
  add_zone("intel-rapl:0", "package-0", 0, kRange);
  auto meter = make_rapl_meter(env_);
  ASSERT_TRUE(meter.ok());
  fs::remove_all(root_ / "class/powercap");
  wall_ += 1;
  EXPECT_EQ((*meter)->read_joules().status().code(), Code::kUnavailable);
}

TEST_F(EnergyTest, RaplWithoutAPackageOrWithBadNumbers) {
  EXPECT_EQ(make_rapl_meter(env_).status().code(), Code::kNotFound);
  add_zone("intel-rapl:1", "psys", 0, kRange);
  EXPECT_EQ(make_rapl_meter(env_).status().code(), Code::kNotFound);
  add_zone("intel-rapl:0", "package-0", 0, kRange);
  put("class/powercap/intel-rapl:0/energy_uj", "12 monkeys");
  EXPECT_EQ(make_rapl_meter(env_).status().code(), Code::kUnavailable);
  set_zone("intel-rapl:0", kRange + 1);
  EXPECT_EQ(make_rapl_meter(env_).status().code(), Code::kUnavailable);
  put("class/powercap/intel-rapl:0/energy_uj", std::string(300, '1'));
  EXPECT_EQ(make_rapl_meter(env_).status().code(), Code::kUnavailable);
}

TEST_F(EnergyTest, BatteryByEnergy) {
  add_energy_battery("Discharging");
  put("class/power_supply/AC/type", "Mains");
  put("class/power_supply/hid-mouse/type", "Battery");
  put("class/power_supply/hid-mouse/scope", "Device");
  auto meter = make_battery_meter(env_);
  ASSERT_TRUE(meter.ok()) << meter.status().to_string();
  EXPECT_EQ((*meter)->source(), EnergySource::kBattery);
  EXPECT_EQ((*meter)->description(), "BAT0, whole machine");
  put(battery("energy_now"), "49000000");  // 1 Wh less
  EXPECT_DOUBLE_EQ(*(*meter)->read_joules(), 3600);
  EXPECT_DOUBLE_EQ(*(*meter)->read_joules(), 3600);
}

TEST_F(EnergyTest, BatteryByChargeAndVoltage) {
  put(battery("type"), "Battery");
  put(battery("status"), "Discharging");
  put(battery("charge_now"), "4000000");
  put(battery("voltage_now"), "12000000");
  auto meter = make_battery_meter(env_);
  ASSERT_TRUE(meter.ok()) << meter.status().to_string();
  put(battery("charge_now"), "3900000");  // 0.1 Ah at 11.5 V on average
  put(battery("voltage_now"), "11000000");
  EXPECT_NEAR(*(*meter)->read_joules(), 0.1 * 11.5 * 3600, 1e-9);
}

TEST_F(EnergyTest, BatteryCountsOnlyWhileDischarging) {
  EXPECT_EQ(make_battery_meter(env_).status().code(), Code::kNotFound);
  add_energy_battery("Full");
  EXPECT_EQ(make_battery_meter(env_).status().code(), Code::kFailedPrecondition);
  put(battery("status"), "Discharging");
  auto meter = make_battery_meter(env_);
  ASSERT_TRUE(meter.ok());
  put(battery("status"), "Charging");
  EXPECT_EQ((*meter)->read_joules().status().code(), Code::kFailedPrecondition);
  put(battery("status"), "Discharging");
  put(battery("energy_now"), "50000001");
  EXPECT_EQ((*meter)->read_joules().status().code(), Code::kFailedPrecondition);
  fs::remove(root_ / battery("energy_now"));
  EXPECT_EQ((*meter)->read_joules().status().code(), Code::kUnavailable);
}

TEST_F(EnergyTest, ModelFollowsWallAndCpuTime) {
  const auto meter = make_model_meter(env_, {.idle_watts = 3, .active_core_watts = 10});
  EXPECT_EQ(meter->source(), EnergySource::kModel);
  EXPECT_EQ(meter->description(), "assumed 3.0 W idle + 10.0 W per busy core");
  EXPECT_DOUBLE_EQ(*meter->read_joules(), 0);
  wall_ += 10;
  cpu_ += 20;  // two cores
  EXPECT_DOUBLE_EQ(*meter->read_joules(), 30 + 200);
}

TEST_F(EnergyTest, ModelOnTheRealClocksRises) {
  const auto meter = make_model_meter({}, {});
  const double first = *meter->read_joules();
  double x = 1;
  for (int i = 0; i < 2000000; ++i) x = x * 1.0000001 + 1e-9;
  ASSERT_GT(x, 1);
  EXPECT_GT(*meter->read_joules(), first);
}

TEST_F(EnergyTest, ChoiceTakesTheBestAndSaysWhyNot) {
  EXPECT_EQ(choose_meter(env_).meter->source(), EnergySource::kModel);
  EXPECT_EQ(choose_meter(env_).passed_over.size(), 2u);
  add_energy_battery("Discharging");
  EXPECT_EQ(choose_meter(env_).meter->source(), EnergySource::kBattery);
  EXPECT_EQ(choose_meter(env_).passed_over.size(), 1u);
  add_zone("intel-rapl:0", "package-0", 0, kRange);
  EXPECT_EQ(choose_meter(env_).meter->source(), EnergySource::kRapl);
  EXPECT_TRUE(choose_meter(env_).passed_over.empty());
}

TEST_F(EnergyTest, SpanGivesGrossAndNet) {
  add_zone("intel-rapl:0", "package-0", 0, kRange);
  auto made = make_rapl_meter(env_);
  ASSERT_TRUE(made.ok());
  Meter& meter = **made;
  uint64_t uj = 0;
  const auto run = [&](double seconds, double watts) {
    wall_ += seconds;
    uj += static_cast<uint64_t>(seconds * watts * 1e6);
    set_zone("intel-rapl:0", uj);
  };
  const auto idle = measure_idle_watts(meter, 2, env_, [&](double seconds) { run(seconds, 5); });
  ASSERT_TRUE(idle.ok());
  EXPECT_NEAR(*idle, 5, 1e-9);
  auto span = EnergySpan::start(meter, *idle, env_);
  ASSERT_TRUE(span.ok());
  run(10, 25);
  const auto energy = span->finish();
  ASSERT_TRUE(energy.ok());
  EXPECT_NEAR(energy->gross_joules, 250, 1e-6);
  EXPECT_NEAR(energy->net_joules, 200, 1e-6);
  EXPECT_NEAR(energy->seconds, 10, 1e-9);
  EXPECT_TRUE(energy->long_enough);
  EXPECT_EQ(energy_source_name(energy->source), "rapl");
  auto brief = EnergySpan::start(meter, 50, env_);
  ASSERT_TRUE(brief.ok());
  run(0.01, 25);
  EXPECT_FALSE(brief->finish()->long_enough);
  EXPECT_EQ(brief->finish()->net_joules, 0);  // never negative
  EXPECT_EQ(measure_idle_watts(meter, 0, env_).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace isthmus
