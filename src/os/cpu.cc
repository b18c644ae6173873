#include "os/cpu.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace isthmus::os {
namespace {

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The cgroup v2 quota in CPUs, rounded up; 0 when there is none.
size_t cgroup_cpus() {
  std::istringstream in(first_line("/sys/fs/cgroup/cpu.max"));
  std::string quota;
  uint64_t period = 0;
  if (!(in >> quota >> period) || quota == "max" || period == 0) return 0;
  char* end = nullptr;
  const uint64_t q = std::strtoull(quota.c_str(), &end, 10);
  return end == quota.c_str() ? 0 : static_cast<size_t>((q + period - 1) / period);
}

/// "32K" or "2048K" or "48M" as bytes.
uint64_t parse_size(const std::string& text) {
  char* end = nullptr;
  const uint64_t n = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str()) return 0;
  if (*end == 'K') return n << 10;
  if (*end == 'M') return n << 20;
  return n;
}

uint64_t status_kib(const char* field) {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(field, 0) == 0) return std::strtoull(line.c_str() + std::strlen(field), nullptr, 10) << 10;
  }
  return 0;
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) out.push_back(cpu);
    }
  }
  if (out.empty()) {
    const unsigned n = std::max(1U, std::thread::hardware_concurrency());
    for (unsigned cpu = 0; cpu < n; ++cpu) out.push_back(static_cast<int>(cpu));
  }
  return out;
}

size_t usable_cpus() {
  const size_t allowed = allowed_cpus().size();
  const size_t quota = cgroup_cpus();
  return std::max<size_t>(1, quota == 0 ? allowed : std::min(allowed, quota));
}

bool pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  CPU_SET(static_cast<unsigned>(cpu), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

bool allow_tiles() {
#if defined(__x86_64__)
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;     // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

bool make_this_thread_background() {
  const sched_param none{};
  return pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) == 0;
}

CpuInfo cpu_info() {
  CpuInfo info;
  info.model_name = "unknown";
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      info.model_name = line.substr(colon + 2);
      break;
    }
  }
  info.logical_cpus = static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  for (int index = 0; index < 6; ++index) {
    const std::string dir = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = first_line((dir + "level").c_str());
    const std::string type = first_line((dir + "type").c_str());
    const uint64_t size = parse_size(first_line((dir + "size").c_str()));
    if (level == "1" && type == "Data") info.l1d_bytes = size;
    if (level == "2") info.l2_bytes = size;
    if (level == "3") info.l3_bytes = size;
  }
  return info;
}

MemoryInfo memory_info() {
  MemoryInfo out;
  std::ifstream in("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  std::string unit;
  while (in >> name >> kib) {
    std::getline(in, unit);
    if (name == "MemTotal:") out.total_bytes = kib << 10;
    if (name == "MemAvailable:") out.available_bytes = kib << 10;
  }
  const std::string limit = first_line("/sys/fs/cgroup/memory.max");
  const uint64_t used = std::strtoull(first_line("/sys/fs/cgroup/memory.current").c_str(), nullptr, 10);
  if (!limit.empty() && limit != "max") {
    const uint64_t bytes = std::strtoull(limit.c_str(), nullptr, 10);
    if (bytes > 0 && bytes < out.total_bytes) {
      out.total_bytes = bytes;
      out.available_bytes = std::min(out.available_bytes, bytes > used ? bytes - used : 0);
    }
  }
  return out;
}

uint64_t resident_bytes() { return status_kib("VmRSS:"); }
uint64_t peak_resident_bytes() { return status_kib("VmHWM:"); }

bool reset_peak_resident() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  return out.good();
}

void release_freed_memory() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

std::string huge_page_mode() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const auto open = line.find('[');
  const auto close = line.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return line.substr(open + 1, close - open - 1);
}

}  // namespace isthmus::os
