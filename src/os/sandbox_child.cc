#include "os/sandbox_child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace isthmus::sandbox {
namespace {

constexpr int kStatusFd = 3;
constexpr int kLeashFd = 4;
constexpr int kFirstFreeFd = 5;
constexpr uid_t kNobody = 65534;
constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

[[noreturn]] void fail(Step step, int error, int item = -1) {
  Record record;
  record.kind = Record::kFailed;
  record.step = step;
  record.value = error;
  record.item = item;
  [[maybe_unused]] const ssize_t n = write(kStatusFd, &record, sizeof record);
  _exit(125);
}

void require(bool ok, Step step, int item = -1) {
  if (!ok) fail(step, errno, item);
}

// Moves the plan's descriptors to 0-4 and closes all others, so that nothing of ours leaks into the sandbox.
void arrange_descriptors(const ChildPlan& plan) {
  const int wanted[] = {plan.input_fd, plan.out_fd, plan.err_fd, plan.status_fd, plan.leash_fd};
  int parked[5];
  for (int i = 0; i < 5; ++i) parked[i] = fcntl(wanted[i], F_DUPFD, 16);
  for (int i = 0; i < 5; ++i) {
    if (parked[i] < 0 || dup2(parked[i], i) < 0) _exit(125);
  }
  if (syscall(SYS_close_range, kFirstFreeFd, ~0u, 0) != 0) fail(Step::kDescriptors, errno);
  require(fcntl(kStatusFd, F_SETFD, FD_CLOEXEC) == 0, Step::kDescriptors);
}

bool write_file(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t length = static_cast<ssize_t>(std::strlen(text));
  const bool ok = write(fd, text, static_cast<size_t>(length)) == length;
  const int error = errno;
  close(fd);
  errno = error;
  return ok;
}

bool become_nobody() {
  return setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
         setresuid(kNobody, kNobody, kNobody) == 0;
}

// Returns 0, or the errno of `*step`. As root we first become nobody, so that the files that this user
// namespace can reach are nobody's, whatever the mounts show.
int enter_namespaces(Isolation isolation, bool root, const char* uid_map, const char* gid_map, Step* step) {
  *step = Step::kUser;
  const bool user_namespace = isolation == Isolation::kUserNamespace;
  if (user_namespace && root) {
    if (!become_nobody()) return errno;
    // Changing the user made our /proc files root's; the maps below must be ours to write.
    if (prctl(PR_SET_DUMPABLE, 1) != 0) return errno;
  }
  *step = Step::kNamespaces;
  if (unshare(kNamespaces | (user_namespace ? CLONE_NEWUSER : 0)) != 0) return errno;
  *step = Step::kUserMap;
  if (!user_namespace) return 0;
  if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", uid_map) ||
      !write_file("/proc/self/gid_map", gid_map)) {
    return errno;
  }
  return 0;
}

void open_trees(const ChildPlan& plan, int* trees) {
  for (size_t i = 0; i < plan.binds.size(); ++i) {
    const int item = static_cast<int>(i);
    const Bind& bind = plan.binds[i];
    trees[i] = open_tree(AT_FDCWD, bind.source,
                         OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | static_cast<unsigned>(AT_RECURSIVE));
    require(trees[i] >= 0, Step::kOpenTree, item);
    mount_attr attributes{};
    attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | (bind.device ? 0 : MOUNT_ATTR_NODEV);
    require(mount_setattr(trees[i], "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes) == 0,
            Step::kReadOnly, item);
  }
}

// The trees are opened before the new root covers /tmp, so what is shown may itself lie there.
void build_root(const ChildPlan& plan) {
  int trees[kMaxBinds] = {};
  require(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, Step::kMountPrivate);
  open_trees(plan, trees);
  require(mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755") == 0, Step::kNewRoot);
  require(chdir("/tmp") == 0, Step::kNewRoot);
  umask(022);
  // The private /tmp comes first, because a path to show may lie in it.
  require(mkdir("tmp", 0755) == 0, Step::kDirectory);
  require(mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, plan.tmp_options) == 0, Step::kTmp);
  for (const char* directory : plan.directories) {
    require(mkdir(directory, 0755) == 0 || errno == EEXIST, Step::kDirectory);
  }
  for (const char* file : plan.files) {
    const int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    require(fd >= 0, Step::kDirectory);
    close(fd);
  }
  for (const Link& link : plan.links) require(symlink(link.target, link.path) == 0, Step::kDirectory);
  for (size_t i = 0; i < plan.binds.size(); ++i) {
    require(move_mount(trees[i], "", AT_FDCWD, plan.binds[i].target, MOVE_MOUNT_F_EMPTY_PATH) == 0,
            Step::kAttach, static_cast<int>(i));
    close(trees[i]);
  }
  require(syscall(SYS_pivot_root, ".", ".") == 0, Step::kPivot);
  require(umount2(".", MNT_DETACH) == 0 && chdir("/") == 0, Step::kPivot);
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  require(mount_setattr(AT_FDCWD, "/", 0, &read_only, sizeof read_only) == 0, Step::kReadOnly);
}

void set_limit(__rlimit_resource resource, rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  require(setrlimit(resource, &limit) == 0, Step::kLimits);
}

void set_limits(const SandboxLimits& limits) {
  set_limit(RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1);  // SIGXCPU, then SIGKILL
  set_limit(RLIMIT_AS, limits.memory_bytes, limits.memory_bytes);
  set_limit(RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes);
  set_limit(RLIMIT_NPROC, limits.processes + 2, limits.processes + 2);  // keeper and init are the same user
  set_limit(RLIMIT_NOFILE, 64, 64);
  set_limit(RLIMIT_CORE, 0, 0);
  set_limit(RLIMIT_MEMLOCK, 0, 0);
}

[[noreturn]] void become_program(const ChildPlan& plan) {
  struct sigaction normal {};
  normal.sa_handler = SIG_DFL;
  for (int number = 1; number < 32; ++number) sigaction(number, &normal, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setsid();
  require(chdir("/tmp") == 0, Step::kTmp);
  set_limits(plan.limits);
  if (plan.isolation == Isolation::kRootNamespace) require(become_nobody(), Step::kPrivileges);
  require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, Step::kPrivileges);
  // In the user namespace we are not its root, so exec clears every capability; none may survive as ambient.
  require(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0, Step::kPrivileges);
  require(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &plan.filter) == 0, Step::kFilter);
  execve(plan.argv[0], const_cast<char* const*>(plan.argv), const_cast<char* const*>(plan.env));
  fail(Step::kExec, errno);
}

// Process 1 of the namespace: when it ends, the kernel kills all others there.
[[noreturn]] void run_init(const ChildPlan& plan) {
  close(kLeashFd);
  build_root(plan);
  const pid_t program = fork();
  require(program >= 0, Step::kFork);
  if (program == 0) become_program(plan);
  for (int fd = 0; fd < kStatusFd; ++fd) close(fd);
  Record record;
  record.kind = Record::kEnded;
  rusage usage{};
  while (true) {  // orphans of the program come to us too
    int status = 0;
    const pid_t pid = wait4(-1, &status, 0, &usage);
    if (pid < 0 && errno != EINTR) _exit(125);
    if (pid != program) continue;
    record.value = status;
    break;
  }
  record.cpu_microseconds = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000L +
                            usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
  record.peak_kib = usage.ru_maxrss;
  [[maybe_unused]] const ssize_t n = write(kStatusFd, &record, sizeof record);
  _exit(0);
}

// Waits for init's end or for the leash: a byte, or its other end closing because our process is gone.
[[noreturn]] void guard_init(pid_t init) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, init, 0));
  pollfd watched[2] = {{pidfd, POLLIN, 0}, {kLeashFd, POLLIN, 0}};
  if (pidfd >= 0) {
    while (poll(watched, 2, -1) < 0 && errno == EINTR) {
    }
  }
  if (pidfd < 0 || watched[1].revents != 0) kill(init, SIGKILL);
  while (waitpid(init, nullptr, 0) < 0 && errno == EINTR) {
  }
  _exit(0);
}

}  // namespace

void run_keeper(const ChildPlan& plan) {
  arrange_descriptors(plan);
  setsid();
  Step step{};
  const int error = enter_namespaces(plan.isolation, plan.root, plan.uid_map, plan.gid_map, &step);
  if (error != 0) fail(step, error);
  const pid_t init = fork();
  require(init >= 0, Step::kFork);
  if (init == 0) run_init(plan);
  for (int fd = 0; fd <= kStatusFd; ++fd) close(fd);
  guard_init(init);
}

int probe(Isolation isolation, bool root, const char* uid_map, const char* gid_map, Step* step) {
  struct Answer {
    Step step;
    int error;
  } answer{Step::kFork, 0};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  const pid_t pid = fork();
  if (pid == 0) {
    answer.error = enter_namespaces(isolation, root, uid_map, gid_map, &answer.step);
    [[maybe_unused]] const ssize_t n = write(ends[1], &answer, sizeof answer);
    _exit(0);
  }
  const int fork_error = errno;
  close(ends[1]);
  const ssize_t got = pid > 0 ? read(ends[0], &answer, sizeof answer) : -1;
  close(ends[0]);
  while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  *step = answer.step;
  if (pid < 0) return fork_error;
  return got == sizeof answer ? answer.error : EIO;
}

const char* step_name(Step step) {
  switch (step) {
    case Step::kDescriptors:
      return "arranging descriptors";
    case Step::kUser:
      return "becoming user nobody";
    case Step::kNamespaces:
      return "making namespaces";
    case Step::kUserMap:
      return "writing the user map";
    case Step::kFork:
      return "starting a process";
    case Step::kMountPrivate:
      return "making the mounts private";
    case Step::kOpenTree:
      return "opening a path to show";
    case Step::kReadOnly:
      return "making a mount read-only";
    case Step::kNewRoot:
      return "mounting the new root";
    case Step::kDirectory:
      return "making a directory of the new root";
    case Step::kAttach:
      return "attaching a path";
    case Step::kTmp:
      return "mounting /tmp";
    case Step::kPivot:
      return "changing the root";
    case Step::kLimits:
      return "setting limits";
    case Step::kPrivileges:
      return "giving up privileges";
    case Step::kFilter:
      return "installing the system call filter";
    case Step::kExec:
      return "starting the program";
  }
  return "unknown step";
}

}  // namespace isthmus::sandbox
