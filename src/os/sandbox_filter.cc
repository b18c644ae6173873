// The seccomp filter. A deny list, because an interpreter needs most of the rest: what is refused creates
// namespaces, changes mounts, looks into other processes, or is a large kernel surface that no test program
// needs.
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

#include "os/sandbox_child.h"

namespace isthmus::sandbox {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
#error "the sandbox knows x86-64 and aarch64"
#endif

constexpr uint32_t kDenied[] = {
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsmount,
    SYS_fsconfig,
    SYS_mount_setattr,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
    SYS_pidfd_getfd,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
};

constexpr uint32_t kNamespaceFlags =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

constexpr sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
constexpr sock_filter give(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
constexpr sock_filter when(uint16_t test, uint32_t value, uint8_t yes, uint8_t no) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | test | BPF_K), value, yes, no);
}
constexpr uint32_t refuse(uint32_t error) { return SECCOMP_RET_ERRNO | error; }

}  // namespace

std::vector<sock_filter> make_filter() {
  std::vector<sock_filter> out = {
      load(offsetof(seccomp_data, arch)),
      when(BPF_JEQ, kArch, 1, 0),
      give(SECCOMP_RET_KILL_PROCESS),
      load(offsetof(seccomp_data, nr)),
      // The x32 numbers of x86-64 would walk around the list.
      when(BPF_JGE, 0x40000000, 0, 1),
      give(refuse(ENOSYS)),
      // clone3 hides its flags behind a pointer; without it the C library uses clone.
      when(BPF_JEQ, SYS_clone3, 0, 1),
      give(refuse(ENOSYS)),
  };
  for (const uint32_t number : kDenied) {
    out.push_back(when(BPF_JEQ, number, 0, 1));
    out.push_back(give(refuse(EPERM)));
  }
  out.push_back(when(BPF_JEQ, SYS_clone, 0, 3));
  out.push_back(load(offsetof(seccomp_data, args[0])));
  out.push_back(when(BPF_JSET, kNamespaceFlags, 0, 1));
  out.push_back(give(refuse(EPERM)));
  out.push_back(give(SECCOMP_RET_ALLOW));
  return out;
}

}  // namespace isthmus::sandbox
