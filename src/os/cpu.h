// What this process may use of the machine: CPUs, memory, and where a thread runs. Thread-safe; values are
// read fresh unless a comment says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace isthmus::os {

/// CPU numbers that this process may run on (its affinity mask), ascending; never empty.
std::vector<int> allowed_cpus();

/// How many threads can really run at once: the affinity mask, limited by the cgroup's CPU quota; at least 1.
size_t usable_cpus();

/// Binds the calling thread to one CPU; false when the kernel refuses.
bool pin_this_thread(int cpu);

/// From now on the calling thread runs only where a CPU has nothing else to do; false when the kernel
/// refuses.
bool make_this_thread_background();

/// Asks the system to let this process's threads use AMX tiles (Linux 5.16 and later, once per process;
/// threads and forked children keep it); false when it does not know them or refuses. Whether the processor
/// has tiles is the caller's question.
bool allow_tiles();

struct CpuInfo {
  std::string model_name;  // as /proc/cpuinfo says it; "unknown" where it does not
  size_t logical_cpus = 0;
  uint64_t l1d_bytes = 0;  // of the first CPU; 0 = unknown
  uint64_t l2_bytes = 0;
  uint64_t l3_bytes = 0;
};
CpuInfo cpu_info();

struct MemoryInfo {
  uint64_t total_bytes = 0;      // of the machine, or the cgroup's limit where that is lower
  uint64_t available_bytes = 0;  // what can be taken without swapping
};
MemoryInfo memory_info();

/// Resident set of this process now, and its highest value so far, in bytes.
uint64_t resident_bytes();
uint64_t peak_resident_bytes();
/// Sets the peak back to the present value where the kernel allows it (Linux: /proc/self/clear_refs).
bool reset_peak_resident();

/// Gives memory that was freed, but that the allocator keeps for later, back to the system where it can.
void release_freed_memory();

/// Text of /sys/kernel/mm/transparent_hugepage/enabled: "always", "madvise", "never" or "unknown".
std::string huge_page_mode();

}  // namespace isthmus::os
