#include "kernels/isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "os/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace isthmus {
namespace {

constexpr std::array kNames = {
    std::pair{Isa::kScalar, std::string_view("scalar")},
    std::pair{Isa::kAvx2, std::string_view("avx2")},
    std::pair{Isa::kAvx512Vnni, std::string_view("avx512")},
    std::pair{Isa::kAmx, std::string_view("amx")},
    std::pair{Isa::kAmxModel, std::string_view("amx-model")},
    std::pair{Isa::kNeon, std::string_view("neon")},
    std::pair{Isa::kNeonDot, std::string_view("neon-dot")},
    std::pair{Isa::kNeonI8mm, std::string_view("neon-i8mm")},
};

#if defined(__x86_64__)
/// F16C has no name in clang 14's builtin; it needs no more from the system than AVX, which the others imply.
bool has_f16c() {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/// Whether there are tiles for int8 and bf16, the system saves them on a switch, and lets this process use
/// them.
bool has_amx() {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_OSXSAVE) == 0) return false;
  constexpr uint32_t kTiles = 1U << 24 | 1U << 25 | 1U << 22;  // AMX-TILE, AMX-INT8, AMX-BF16
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kTiles) != kTiles) return false;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  constexpr uint32_t kSaved = 1U << 17 | 1U << 18;  // XTILECFG, XTILEDATA
  return (eax & kSaved) == kSaved && os::allow_tiles();
}
#endif

std::vector<Isa> detect() {
  std::vector<Isa> found = {Isa::kScalar};
#if defined(__x86_64__)
  // The compiler's own test reads CPUID and, for the wide registers, XGETBV: what the system saves on a
  // switch.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2) found.push_back(Isa::kAvx2);
  if (avx2 && avx512) found.push_back(Isa::kAvx512Vnni);
  if (avx2 && avx512 && has_amx()) found.push_back(Isa::kAmx);
#elif defined(__aarch64__)
  found.push_back(Isa::kNeon);
  const bool dot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  const bool i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  if (dot) found.push_back(Isa::kNeonDot);
  if (dot && i8mm) found.push_back(Isa::kNeonI8mm);
#endif
  return found;
}

std::string names_of(const std::vector<Isa>& isas) {
  std::string names;
  for (const Isa isa : isas) {
    if (!names.empty()) names += ", ";
    names += isa_name(isa);
  }
  return names;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  for (const auto& [value, name] : kNames) {
    if (value == isa) return name;
  }
  return "unknown";
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

const std::vector<Isa>& testable_isas() {
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> all = available_isas();
    // In front of the best one, which stays the last.
    if (std::ranges::find(all, Isa::kAvx512Vnni) != all.end()) all.insert(all.begin() + 1, Isa::kAmxModel);
    return all;
  }();
  return isas;
}

Result<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : testable_isas()) {
    if (isa_name(isa) == name) return isa;
  }
  const bool known = std::ranges::any_of(kNames, [&](const auto& entry) { return entry.second == name; });
  return invalid_argument(fmt::format("{} instruction set '{}'; this machine can run: {}",
                                      known ? "this machine does not have the" : "there is no", name,
                                      names_of(available_isas())));
}

Result<Isa> active_isa() {
  static const Result<Isa> chosen = []() -> Result<Isa> {
    const char* forced = std::getenv("ISTHMUS_ISA");
    if (forced == nullptr || *forced == '\0') return available_isas().back();
    auto parsed = parse_isa(forced);
    if (!parsed.ok()) return parsed.status().with_context("ISTHMUS_ISA");
    return parsed;
  }();
  return chosen;
}

}  // namespace isthmus
