// isthmus doctor: what this machine is, whether the kernels are right on it, and what it can reach.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "apps/isthmus/command.h"
#include "apps/isthmus/figures.h"
#include "apps/isthmus/output.h"
#include "engine/stream_choice.h"
#include "kernels/isa.h"
#include "model/packed_cache.h"
#include "ops/kernel_check.h"
#include "ops/linear_streams.h"
#include "ops/linear_tiles.h"
#include "ops/machine_limits.h"
#include "os/cpu.h"
#include "os/energy.h"
#include "os/file.h"
#include "os/paths.h"
#include "os/sandbox.h"
#include "threads/pool.h"

namespace isthmus::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kDiskBytes = size_t{64} << 20;

Result<Json> memory_facts() {
  const auto memory = os::memory_info();
  Json out = {{"total_bytes", memory.total_bytes},
              {"available_bytes", memory.available_bytes},
              {"huge_pages", os::huge_page_mode()},
              {"bandwidth", Json::array()}};
  ISTHMUS_ASSIGN_OR_RETURN(const BandwidthProbe probe, BandwidthProbe::create());
  std::vector<size_t> threads = {1};
  if (os::usable_cpus() > 1) threads.push_back(os::usable_cpus());
  for (const size_t t : threads) {
    for (const size_t streams : {1, 2, 4, 8}) {
      out["bandwidth"].push_back(
          {{"threads", t}, {"streams", streams}, {"gb_per_second", probe.read(t, streams)}});
    }
  }
  return out;
}

Json kernel_facts(bool& good) {
  Json out = {{"available", Json::array()}, {"self_test", Json::array()}};
  for (const Isa isa : available_isas()) out["available"].push_back(isa_name(isa));
  const auto active = active_isa();
  out["active"] = active.ok() ? std::string(isa_name(*active)) : "none: " + active.status().message();
  good = active.ok();
  for (const auto& result : self_test_kernels()) {
    out["self_test"].push_back(
        {{"isa", isa_name(result.isa)}, {"checks", result.checks}, {"failures", result.failures}});
    good = good && result.failures.empty();
  }
  out["peak_gmac_per_second"] = {{"int8", peak_gmacs(Compute::kInt8)},
                                 {"int16", peak_gmacs(Compute::kInt16)},
                                 {"float32", peak_gmacs(Compute::kF32)}};
  ThreadPool pool(os::usable_cpus());
  const auto plan = measure_streams(pool);
  if (plan.ok()) {
    out["weight_streams"] = {{"panels_at_once", plan->panels},
                             {"prefetch_bytes", plan->prefetch_bytes},
                             {"gb_per_second", plan->gb_per_s}};
  }
  if (const auto tiles = measure_tiles(pool); tiles.ok()) {
    out["tiles"] = {
        {"gmac_per_second_8_bit", tiles->tiles_int8}, {"gmac_per_second_16_bit", tiles->tiles_int16},
        {"without_tiles_8_bit", tiles->vectors_int8}, {"without_tiles_16_bit", tiles->vectors_int16},
        {"used_8_bit", tiles->plan().int8},           {"used_16_bit", tiles->plan().int16}};
  }
  out["remembered_streams"] = Json::array();
  const auto cache = standard_path(Place::kCache);
  const std::string streams = cache.ok() ? *cache + "/streams" : "";
  for (const StreamRecord& r : read_stream_records(real_file_system(), streams)) {
    out["remembered_streams"].push_back({{"cpu", r.cpu},
                                         {"isa", r.isa},
                                         {"threads", r.threads},
                                         {"panels_at_once", r.plan.panels},
                                         {"prefetch_bytes", r.plan.prefetch_bytes},
                                         {"gb_per_second", r.plan.gb_per_s}});
  }
  return out;
}

/// Free space beside the models and the speed of a durable write there.
Result<Json> disk_facts() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string folder, standard_path(Place::kCache));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto space = std::filesystem::space(folder, error);
  if (error) return io_error(folder + ": " + error.message());
  Json out = {{"folder", folder}, {"free_bytes", space.available}};
  if (space.available < 4 * kDiskBytes) return out;
  const std::vector<std::byte> data(kDiskBytes, std::byte{0x5A});
  const std::string path = folder + "/doctor.probe";
  (void)real_file_system().remove(path);
  const auto start = SteadyClock::now();
  ISTHMUS_ASSIGN_OR_RETURN(const auto file, real_file_system().create(path));
  Status written = file->append(data);
  if (written.ok()) written = file->sync();
  if (written.ok()) written = file->close();
  const double seconds = seconds_since(start);
  (void)real_file_system().remove(path);
  ISTHMUS_RETURN_IF_ERROR(written);
  out["durable_write_mb_per_second"] = static_cast<double>(kDiskBytes) / seconds / 1e6;
  return out;
}

Json packed_facts() {
  const PackedCacheOptions options = standard_packed_cache();
  if (options.folder.empty()) return {{"state", "off"}};
  const PackedFolderFacts facts = packed_folder_facts(options.folder);
  return {{"folder", options.folder},
          {"files", facts.files},
          {"bytes", facts.bytes},
          {"limit_bytes", options.limit}};
}

void print_kernels(const Json& kernels) {
  std::string list;
  for (const auto& isa : kernels["available"]) list += (list.empty() ? "" : ", ") + isa.get<std::string>();
  fmt::print("Kernels      {} (of {})\n", kernels["active"].get<std::string>(), list);
  for (const auto& test : kernels["self_test"]) {
    const auto& failures = test["failures"];
    fmt::print("  self-test  {}: {} checks against scalar, {}\n", test["isa"].get<std::string>(),
               test["checks"].get<size_t>(),
               failures.empty() ? "all equal" : "DIFFERENT: " + failures.dump());
  }
  if (kernels.contains("tiles")) {
    const auto& t = kernels["tiles"];
    for (const char* bits : {"8_bit", "16_bit"}) {
      const auto speed = [&](const char* what) { return t[std::string(what) + bits].get<double>(); };
      fmt::print("  tiles      {} activations: {:.0f} GMAC/s, without tiles {:.0f}: {}\n",
                 bits[0] == '8' ? "8-bit" : "16-bit", speed("gmac_per_second_"), speed("without_tiles_"),
                 t[std::string("used_") + bits].get<bool>() ? "used" : "not used");
    }
  }
  const auto peak = [&](const char* kind) { return kernels["peak_gmac_per_second"][kind].get<double>(); };
  fmt::print(
      "  multiplies a thread, at most: {:.0f} GMAC/s with 8-bit activations, {:.0f} with 16-bit, {:.0f} with "
      "float32\n",
      peak("int8"), peak("int16"), peak("float32"));
  if (kernels.contains("weight_streams")) {
    const auto& s = kernels["weight_streams"];
    fmt::print("  weights    best read by {} panels at once, prefetching {} bytes ahead: {:.1f} GB/s\n",
               s["panels_at_once"].get<size_t>(), s["prefetch_bytes"].get<size_t>(),
               s["gb_per_second"].get<double>());
  }
}

void print_report(const Json& r) {
  const auto& cpu = r["cpu"];
  fmt::print("CPU          {}, {} logical, {} usable; L1d {}, L2 {}, L3 {}\n",
             printable(cpu["model"].get<std::string>()), cpu["logical"].get<size_t>(),
             cpu["usable"].get<size_t>(), human_bytes(cpu["l1d_bytes"].get<uint64_t>()),
             human_bytes(cpu["l2_bytes"].get<uint64_t>()), human_bytes(cpu["l3_bytes"].get<uint64_t>()));
  print_kernels(r["kernels"]);
  const auto& memory = r["memory"];
  fmt::print("Memory       {} of {} available, transparent huge pages: {}\n",
             human_bytes(memory["available_bytes"].get<uint64_t>()),
             human_bytes(memory["total_bytes"].get<uint64_t>()), memory["huge_pages"].get<std::string>());
  for (const auto& line : memory["bandwidth"]) {
    fmt::print("  read       {} thread(s), {} stream(s): {:.1f} GB/s\n", line["threads"].get<size_t>(),
               line["streams"].get<size_t>(), line["gb_per_second"].get<double>());
  }
  const auto& disk = r["disk"];
  if (disk.contains("error")) {
    fmt::print("Disk         {}\n", printable(disk["error"].get<std::string>()));
  } else {
    fmt::print("Disk         {} free in {}", human_bytes(disk["free_bytes"].get<uint64_t>()),
               printable(disk["folder"].get<std::string>()));
    if (disk.contains("durable_write_mb_per_second"))
      fmt::print(", durable write {:.0f} MB/s", disk["durable_write_mb_per_second"].get<double>());
    fmt::print("\n");
  }
  const auto& packed = r["packed_cache"];
  if (packed.contains("folder")) {
    fmt::print("Packed       {} model(s), {} of {} in {}\n", packed["files"].get<size_t>(),
               human_bytes(packed["bytes"].get<uint64_t>()),
               human_bytes(packed["limit_bytes"].get<uint64_t>()),
               printable(packed["folder"].get<std::string>()));
  } else {
    fmt::print("Packed       off\n");
  }
  fmt::print("Energy       {} ({})\n", r["energy"]["source"].get<std::string>(),
             r["energy"]["description"].get<std::string>());
  for (const auto& sentence : r["energy"]["passed_over"])
    fmt::print("  not used   {}\n", printable(sentence.get<std::string>()));
  fmt::print("Sandbox      {}\n", printable(r["sandbox"].get<std::string>()));
}

Status doctor(const Context& context) {
  Json report;
  const auto cpu = os::cpu_info();
  report["cpu"] = {{"model", cpu.model_name},    {"logical", cpu.logical_cpus}, {"usable", os::usable_cpus()},
                   {"l1d_bytes", cpu.l1d_bytes}, {"l2_bytes", cpu.l2_bytes},    {"l3_bytes", cpu.l3_bytes}};
  bool good = true;
  report["kernels"] = kernel_facts(good);
  ISTHMUS_ASSIGN_OR_RETURN(report["memory"], memory_facts());
  const auto disk = disk_facts();
  report["disk"] = disk.ok() ? *disk : Json{{"error", disk.status().message()}};
  report["packed_cache"] = packed_facts();
  const MeterChoice meter = choose_meter();
  report["energy"] = {{"source", energy_source_name(meter.meter->source())},
                      {"description", meter.meter->description()},
                      {"passed_over", meter.passed_over}};
  const auto isolation = sandbox_isolation();
  report["sandbox"] =
      isolation.ok() ? "generated programs can be run isolated" : isolation.status().message();
  if (context.json) {
    print_json(report);
  } else {
    print_report(report);
  }
  return good
             ? ok_status()
             : internal_error("the kernels do not compute what they must on this machine; see the self-test");
}

}  // namespace

Command doctor_command() {
  return {.name = "doctor",
          .group = Group::kProgram,
          .summary = "Check this machine: CPU, kernels, memory, disk, energy",
          .json = true,
          .aliases = {},
          .description =
              "Every kernel of every instruction set that this CPU offers is compared with the scalar one, "
              "bit for bit; memory is read "
              "with one to eight streams, since machines differ in which is best. A failed self-test ends "
              "with exit code 1.",
          .setup = [](CLI::App&) { return Action([](const Context& context) { return doctor(context); }); }};
}

}  // namespace isthmus::cli
