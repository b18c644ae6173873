#include "os/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace isthmus {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPython = "/usr/bin/python3";

SandboxSpec python(const std::string& program) {
  SandboxSpec spec;
  spec.argv = {kPython, "-I", "-"};
  spec.input = program;
  return spec;
}

SandboxResult run(const SandboxSpec& spec) {
  auto result = run_sandboxed(spec);
  if (!result.ok()) {
    ADD_FAILURE() << result.status().to_string();
    return {};
  }
  return *result;
}

SandboxResult run(const std::string& program) { return run(python(program)); }

// Processes of the whole machine whose command line contains `mark`.
int count_processes(const std::string& mark) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find(mark) != std::string::npos) ++count;
  }
  return count;
}

TEST(Sandbox, RunsAProgramAndReportsIt) {
  const auto result = run("import sys\nprint('hello', 6 * 7)\nprint('oops', file=sys.stderr)\nsys.exit(3)");
  EXPECT_EQ(result.end, SandboxEnd::kExited);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "hello 42\n");
  EXPECT_EQ(result.err, "oops\n");
  EXPECT_GT(result.cpu_seconds, 0);
  EXPECT_GT(result.peak_bytes, 1u << 20);
  EXPECT_GT(result.wall_seconds, 0);
}

TEST(Sandbox, NetworkIsRefused) {
  const auto result = run(R"(
import socket, os
for host, port in (('127.0.0.1', 22), ('1.1.1.1', 53)):
    try:
        socket.create_connection((host, port), 2)
        print('connected')
    except OSError as e:
        print('refused', e.errno in (101, 111))
print(sorted(name for _, name in socket.if_nameindex()))
)");
  EXPECT_EQ(result.out, "refused True\nrefused True\n['lo']\n") << result.err;
}

TEST(Sandbox, ForkBombIsContainedAndNothingSurvives) {
  auto spec = python(R"(
import os, sys
mark = 'sandbox-bomb-mark'
def bomb():
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
                os.execv(sys.executable, [sys.executable, '-I', '-c', 'import time; time.sleep(60)', mark])
        except OSError:
            print('limit', flush=True)
            return
bomb()
import time
time.sleep(60)
)");
  spec.limits.wall_seconds = 2;
  const auto result = run(spec);
  EXPECT_EQ(result.end, SandboxEnd::kWallLimit);
  EXPECT_EQ(result.out, "limit\n");
  EXPECT_LT(result.wall_seconds, 5);
  EXPECT_EQ(count_processes("sandbox-bomb-mark"), 0);
}

TEST(Sandbox, BackgroundChildrenDieWithTheProgram) {
  const auto result = run(R"(
import subprocess, sys
subprocess.Popen([sys.executable, '-I', '-c', 'import time; time.sleep(60)', 'sandbox-stray-mark'],
                 start_new_session=True, stdout=subprocess.DEVNULL)
print('done')
)");
  EXPECT_EQ(result.end, SandboxEnd::kExited);
  EXPECT_EQ(result.out, "done\n") << result.err;
  EXPECT_LT(result.wall_seconds, 5);
  EXPECT_EQ(count_processes("sandbox-stray-mark"), 0);
}

TEST(Sandbox, MemoryLimit) {
  auto spec =
      python("try:\n  x = bytearray(600 << 20)\n  print('got it')\nexcept MemoryError:\n  print('no')");
  spec.limits.memory_bytes = 512ull << 20;
  EXPECT_EQ(run(spec).out, "no\n");
  spec.limits.memory_bytes = 1024ull << 20;
  EXPECT_EQ(run(spec).out, "got it\n");
}

TEST(Sandbox, WallLimit) {
  auto spec = python("import time\nprint('start', flush=True)\ntime.sleep(30)");
  spec.limits.wall_seconds = 0.5;
  const auto result = run(spec);
  EXPECT_EQ(result.end, SandboxEnd::kWallLimit);
  EXPECT_EQ(result.out, "start\n");
  EXPECT_GE(result.wall_seconds, 0.5);
  EXPECT_LT(result.wall_seconds, 3);
}

TEST(Sandbox, CpuLimitEvenWhenTheSignalIsIgnored) {
  for (const char* prelude : {"", "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"}) {
    auto spec = python(std::string(prelude) + "while True: pass");
    spec.limits.cpu_seconds = 1;
    const auto result = run(spec);
    EXPECT_EQ(result.end, SandboxEnd::kCpuLimit) << sandbox_end_name(result.end);
    EXPECT_LT(result.cpu_seconds, 2.5);
  }
}

TEST(Sandbox, OutputLimitKeepsTheBeginning) {
  auto spec = python("while True: print('x' * 1000)");
  spec.limits.output_bytes = 10000;
  const auto result = run(spec);
  EXPECT_EQ(result.end, SandboxEnd::kOutputLimit);
  EXPECT_EQ(result.out.size(), 10000u);
  EXPECT_LT(result.wall_seconds, 5);
  // A short flood whose writer is gone before we read it counts just the same.
  auto brief = python("import sys\nsys.stderr.write('y' * 20000)");
  brief.limits.output_bytes = 10000;
  EXPECT_EQ(run(brief).end, SandboxEnd::kOutputLimit);
}

TEST(Sandbox, WritesOutsideTmpAreRefused) {
  const std::string outside = std::filesystem::temp_directory_path() / "sandbox-outside";
  const auto result = run(R"(
import os
def attempt(path):
    try:
        with open(path, 'w') as f: f.write('x')
        return 'written'
    except OSError as e:
        return e.strerror
print(attempt('/usr/evil'), '|', attempt('/evil'), '|', attempt('/etc/evil'), '|', attempt('/dev/evil'))
print(attempt('/tmp/sandbox-outside'), os.listdir('/tmp'))
try:
    os.remove('/usr/bin/python3')
except OSError as e:
    print(e.strerror)
)");
  EXPECT_EQ(result.out,
            "Read-only file system | Read-only file system | Read-only file system | Read-only file system\n"
            "written ['sandbox-outside']\nRead-only file system\n")
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(outside));
}

TEST(Sandbox, SeesNothingOfTheMachine) {
  setenv("SANDBOX_TEST_SECRET", "hush", 1);
  const auto result = run(R"(
import os
print(sorted(set(os.listdir('/')) - {'lib32', 'lib64', 'libx32'}))
print(os.listdir('/proc'), sorted(os.listdir('/dev')), 'passwd' in os.listdir('/etc'))
print('SANDBOX_TEST_SECRET' in os.environ, os.getuid(), os.getpid() < 4, os.path.exists('/root'))
)");
  EXPECT_EQ(result.out,
            "['bin', 'dev', 'etc', 'lib', 'proc', 'sbin', 'tmp', 'usr']\n"
            "[] ['null', 'urandom', 'zero'] False\n" +
                std::string(*sandbox_isolation() == Isolation::kUserNamespace ? "False 1000 True False\n"
                                                                              : "False 65534 True False\n"))
      << result.err;
}

TEST(Sandbox, FileAndTmpSizesAreLimited) {
  auto spec = python(R"(
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def fill(path, megabytes):
    try:
        with open(path, 'wb', buffering=0) as f:
            for _ in range(megabytes): f.write(bytes(1 << 20))
        return 'ok'
    except OSError as e:
        return e.strerror
print(fill('/tmp/a', 2), '|', fill('/tmp/b', 8), '|', fill('/tmp/c', 4))
)");
  spec.limits.file_bytes = 4ull << 20;
  spec.limits.tmp_bytes = 8ull << 20;
  EXPECT_EQ(run(spec).out, "ok | File too large | No space left on device\n");
}

TEST(Sandbox, NoPrivilegesAndNoNewNamespaces) {
  const auto result = run(R"(
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    code = getattr(libc, name)(*args)
    return (code, os.strerror(ctypes.get_errno())) if code else 'allowed'
print(call('unshare', 0x10000000))
print(call('mount', b'none', b'/tmp', b'tmpfs', 0, None))
print(call('ptrace', 16, 1, 0, 0))
print(libc.prctl(39, 0, 0, 0, 0))
for attempt in (lambda: os.setuid(0), lambda: os.kill(1, 9), lambda: os.chroot('/tmp')):
    try:
        attempt()
        print('allowed')
    except OSError as e:
        print(e.strerror)
)");
  // In the user namespace there is no user 0 to become. A signal to process 1 from inside its namespace is
  // taken and has no effect: the program goes on to its end.
  const std::string denied = "(-1, 'Operation not permitted')\n";
  const bool user = *sandbox_isolation() == Isolation::kUserNamespace;
  EXPECT_EQ(result.out, denied + denied + denied + "1\n" +
                            (user ? "Invalid argument\nallowed\n"
                                  : "Operation not permitted\nOperation not permitted\n") +
                            "Operation not permitted\n")
      << result.err;
  EXPECT_EQ(result.end, SandboxEnd::kExited);
}

TEST(Sandbox, ReportsSignals) {
  const auto result = run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)");
  EXPECT_EQ(result.end, SandboxEnd::kSignalled);
  EXPECT_EQ(result.signal, SIGSEGV);
}

TEST(Sandbox, LongInputThatIsNeverReadDoesNotBlock) {
  SandboxSpec spec;
  spec.argv = {"/bin/true"};
  spec.input = std::string(8u << 20, 'x');
  EXPECT_EQ(run(spec).exit_code, 0);
}

TEST(Sandbox, ReadablePathsAreShownReadOnly) {
  const auto dir = std::filesystem::temp_directory_path() / "sandbox_readable_test";
  std::filesystem::create_directories(dir);
  std::filesystem::permissions(dir, std::filesystem::perms{0755});
  std::ofstream(dir / "data.txt") << "shown";
  std::filesystem::permissions(dir / "data.txt", std::filesystem::perms{0644});
  auto spec = python("import os\np = '" + dir.string() + "/data.txt'\nprint(open(p).read())\n" +
                     "try:\n  open(p, 'w')\nexcept OSError as e:\n  print(e.strerror)");
  spec.readable = {dir.string()};
  EXPECT_EQ(run(spec).out, "shown\nRead-only file system\n");
  spec.readable = {"/var/lib/dpkg"};
  spec.input =
      "import os\nprint(os.listdir('/var'), os.listdir('/var/lib'), 'status' in os.listdir('/var/lib/dpkg'))";
  EXPECT_EQ(run(spec).out, "['lib'] ['dpkg'] True\n");
  std::filesystem::remove_all(dir);
}

TEST(Sandbox, RefusesBadSpecs) {
  const auto code = [](const SandboxSpec& spec) { return run_sandboxed(spec).status().code(); };
  SandboxSpec spec;
  EXPECT_EQ(code(spec), Code::kInvalidArgument);
  spec.argv = {"python3"};
  EXPECT_EQ(code(spec), Code::kInvalidArgument);
  spec.argv = {"/usr/bin/no-such-program"};
  EXPECT_EQ(code(spec), Code::kNotFound);
  spec.argv = {"/bin/true"};
  for (const char* path : {"relative", "/usr/../etc", "/", "/etc/", "/tmp", "/proc", "//etc"}) {
    spec.readable = {path};
    EXPECT_EQ(code(spec), Code::kInvalidArgument) << path;
  }
  spec.readable = {"/no/such/place"};
  EXPECT_EQ(code(spec), Code::kNotFound);
  spec.readable.clear();
  spec.limits.wall_seconds = 0;
  EXPECT_EQ(code(spec), Code::kInvalidArgument);
}

TEST(Sandbox, CallerCanStopIt) {
  CancelSource source;
  StopPolicy stop;
  stop.token = source.token();
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    source.cancel();
  });
  EXPECT_EQ(run_sandboxed(python("import time\ntime.sleep(30)"), stop).status().code(), Code::kCancelled);
  canceller.join();
  StopPolicy late;
  late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  EXPECT_EQ(run_sandboxed(python("import time\ntime.sleep(30)"), late).status().code(),
            Code::kDeadlineExceeded);
}

// Runs the test below in a process that lives in a user namespace where no further ones may be made. As root
// it is root there as well, else an ordinary user.
int run_where_user_namespaces_are_forbidden() {
  const std::string id = std::to_string(geteuid());
  const std::string map = geteuid() == 0 ? "0 0 65536" : "1000 " + id + " 1";
  int ready[2], mapped[2];
  if (pipe(ready) != 0 || pipe(mapped) != 0) return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    char byte = 0;
    const bool entered = unshare(CLONE_NEWUSER) == 0 && write(ready[1], &byte, 1) == 1;
    if (!entered || read(mapped[0], &byte, 1) != 1) _exit(90);
    std::ofstream limit("/proc/sys/user/max_user_namespaces");
    if (!(limit << "0").flush()) _exit(91);
    execl("/proc/self/exe", "os_test", "--gtest_filter=SandboxModes.*", nullptr);
    _exit(92);
  }
  close(ready[1]);
  char byte = 0;
  const bool waiting = read(ready[0], &byte, 1) == 1;
  const std::string proc = "/proc/" + std::to_string(pid);
  if (geteuid() != 0) std::ofstream(proc + "/setgroups") << "deny";
  std::ofstream(proc + "/uid_map") << map;
  std::ofstream(proc + "/gid_map") << (geteuid() == 0 ? map : "1000 " + std::to_string(getegid()) + " 1");
  if (waiting && write(mapped[1], &byte, 1) != 1) return -1;
  int status = 0;
  waitpid(pid, &status, 0);
  for (const int fd : {ready[0], mapped[0], mapped[1]}) close(fd);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Sandbox, WithoutUserNamespacesRootStillIsolatesAndOthersAreRefused) {
  // Where they are forbidden to begin with, the test below has shown already what we want to see here.
  if (*sandbox_isolation() != Isolation::kUserNamespace) return;
  EXPECT_EQ(run_where_user_namespaces_are_forbidden(), 0);
}

TEST(SandboxModes, FollowWhatTheKernelAllows) {
  int allowed = 0;
  std::ifstream("/proc/sys/user/max_user_namespaces") >> allowed;
  const auto result = run_sandboxed(python(R"(
import os, socket
print(os.getuid(), os.listdir('/proc'), os.path.exists('/root'), sorted(name for _, name in socket.if_nameindex()))
for attempt in (lambda: open('/usr/evil', 'w'), lambda: os.chroot('/tmp')):
    try:
        attempt()
        print('allowed')
    except OSError as e:
        print(e.strerror)
)"));
  if (allowed == 0 && geteuid() != 0) {
    EXPECT_EQ(result.status().code(), Code::kUnsupported);
    EXPECT_THAT(result.status().message(), HasSubstr("user namespaces: making namespaces"));
    return;
  }
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const bool user = *sandbox_isolation() == Isolation::kUserNamespace;
  EXPECT_FALSE(user && allowed == 0);
  EXPECT_EQ(result->out, std::string(user ? "1000" : "65534") +
                             " [] False ['lo']\nRead-only file system\nOperation not permitted\n")
      << result->err;
}

TEST(Sandbox, SeveralAtOnce) {
  std::vector<std::thread> threads;
  std::array<std::string, 4> outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&outputs, i] {
      for (int turn = 0; turn < 3; ++turn) {
        const auto result = run_sandboxed(python("print(" + std::to_string(i) + " ** 2)"));
        outputs[i] += result.ok() ? result->out : result.status().to_string();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(outputs, ::testing::ElementsAre("0\n0\n0\n", "1\n1\n1\n", "4\n4\n4\n", "9\n9\n9\n"));
}

}  // namespace
}  // namespace isthmus
