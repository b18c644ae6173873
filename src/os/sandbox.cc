#include "os/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "os/sandbox_child.h"

namespace isthmus {
namespace {

using sandbox::ChildPlan;
using sandbox::Record;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr uint64_t kMaxInput = 64ull << 20;

std::string reason(int error) { return std::strerror(error); }

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return io_error("sandbox: cannot make a pipe: " + reason(errno));
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// Standard input as a file in memory: the program may read it late or never without blocking us.
Result<Fd> make_input(const std::string& text) {
  if (text.size() > kMaxInput) return invalid_argument("sandbox: the input is longer than 64 MiB");
  Fd file(memfd_create("input", MFD_CLOEXEC));
  size_t done = 0;
  while (file.get() >= 0 && done < text.size()) {
    const ssize_t n = write(file.get(), text.data() + done, text.size() - done);
    if (n < 0) break;
    done += static_cast<size_t>(n);
  }
  if (file.get() < 0 || done < text.size() || lseek(file.get(), 0, SEEK_SET) != 0) {
    return io_error("sandbox: cannot hold the input: " + reason(errno));
  }
  return file;
}

// ---- what the program will see ----

// Owns the strings that a ChildPlan points to.
class PlanStrings {
 public:
  const char* keep(std::string text) {
    strings_.push_back(std::move(text));
    return strings_.back().c_str();
  }

 private:
  std::deque<std::string> strings_;
};

struct Preparation {
  PlanStrings strings;
  ChildPlan plan;
  std::set<std::string> directories;  // relative; the order of a set puts parents first
  std::vector<const char*> argv, env;
  std::vector<sock_filter> filter;
};

void add_parents(Preparation& prep, const std::string& relative) {
  for (size_t slash = relative.find('/'); slash != std::string::npos; slash = relative.find('/', slash + 1)) {
    prep.directories.insert(relative.substr(0, slash));
  }
}

// Shows `path` at the same place: a symbolic link as a link when `keep_link`, else what it leads to.
Status show(Preparation& prep, const std::string& path, bool keep_link, bool device) {
  struct stat info {};
  if ((keep_link ? lstat : stat)(path.c_str(), &info) != 0) return not_found(path + ": " + reason(errno));
  const std::string relative = path.substr(1);
  add_parents(prep, relative);
  if (S_ISLNK(info.st_mode)) {
    std::array<char, 4096> target;
    const ssize_t n = readlink(path.c_str(), target.data(), target.size());
    if (n <= 0) return io_error(path + ": " + reason(errno));
    prep.plan.links.push_back(
        {prep.strings.keep(std::string(target.data(), static_cast<size_t>(n))), prep.strings.keep(relative)});
    return ok_status();
  }
  if (prep.plan.binds.size() == sandbox::kMaxBinds)
    return invalid_argument("sandbox: too many paths to show");
  const bool directory = S_ISDIR(info.st_mode);
  if (directory) {
    prep.directories.insert(relative);
  } else {
    prep.plan.files.push_back(prep.strings.keep(relative));
  }
  prep.plan.binds.push_back({prep.strings.keep(path), prep.strings.keep(relative), directory, device});
  return ok_status();
}

Status show_system(Preparation& prep) {
  for (const char* path : {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache",
                           "/etc/alternatives"}) {
    Status status = show(prep, path, true, false);
    if (!status.ok() && status.code() != Code::kNotFound) return status;  // not every system has all of them
  }
  for (const char* path : {"/dev/null", "/dev/zero", "/dev/urandom"}) {
    ISTHMUS_RETURN_IF_ERROR(show(prep, path, false, true));
  }
  prep.directories.insert("proc");
  return ok_status();
}

// Normal absolute paths only, so that no ".." leaves the new root and no path hides a system one.
Status check_path(const std::string& path) {
  if (path.size() < 2 || path[0] != '/' || path.back() == '/' ||
      (path + "/").find("/../") != std::string::npos || (path + "/").find("/./") != std::string::npos ||
      path.find("//") != std::string::npos || path.find('\0') != std::string::npos) {
    return invalid_argument("sandbox: not a plain absolute path: '" + path + "'");
  }
  return ok_status();
}

bool below(std::string_view path, std::string_view directory) {
  return path.size() > directory.size() && path.starts_with(directory) && path[directory.size()] == '/';
}

std::string lies_in(std::string_view path, std::string_view other) {
  std::string out("sandbox: ");
  return out.append(path).append(" lies in ").append(other);
}

Status check_readable(const std::vector<std::string>& readable) {
  for (const std::string& path : readable) {
    ISTHMUS_RETURN_IF_ERROR(check_path(path));
    for (const char* system :
         {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/dev", "/proc", "/tmp"}) {
      if (path == system || below(path, "/proc") || below(path, "/dev"))
        return invalid_argument("sandbox: " + path + " is not the caller's to show");
    }
    for (const std::string& other : readable) {
      if (below(path, other)) return invalid_argument(lies_in(path, other));
    }
  }
  return ok_status();
}

Status prepare(const SandboxSpec& spec, Isolation isolation, Preparation& prep) {
  ISTHMUS_RETURN_IF_ERROR(show_system(prep));
  for (const std::string& path : spec.readable) {
    if (!below(path, "/usr")) ISTHMUS_RETURN_IF_ERROR(show(prep, path, false, false));
  }
  for (const std::string& directory : prep.directories) {
    prep.plan.directories.push_back(prep.strings.keep(directory));
  }
  for (const std::string& argument : spec.argv) prep.argv.push_back(argument.c_str());
  prep.argv.push_back(nullptr);
  prep.env = {"PATH=/usr/bin:/bin",
              "HOME=/tmp",
              "TMPDIR=/tmp",
              "LANG=C.UTF-8",
              "PYTHONHASHSEED=0",
              "PYTHONUNBUFFERED=1",
              "PYTHONDONTWRITEBYTECODE=1",
              "OMP_NUM_THREADS=1",
              nullptr};
  prep.filter = sandbox::make_filter();
  prep.plan.isolation = isolation;
  prep.plan.argv = prep.argv.data();
  prep.plan.env = prep.env.data();
  prep.plan.filter = {static_cast<unsigned short>(prep.filter.size()), prep.filter.data()};
  prep.plan.tmp_options =
      prep.strings.keep("mode=1777,nr_inodes=4096,size=" + std::to_string(spec.limits.tmp_bytes));
  prep.plan.limits = spec.limits;
  return ok_status();
}

Status check_spec(const SandboxSpec& spec) {
  if (spec.argv.empty() || spec.argv[0].empty() || spec.argv[0][0] != '/') {
    return invalid_argument("sandbox: argv[0] must be an absolute path");
  }
  if (!(spec.limits.wall_seconds > 0) || spec.limits.cpu_seconds == 0 || spec.limits.processes == 0 ||
      spec.limits.tmp_bytes == 0) {
    return invalid_argument("sandbox: time, process and /tmp limits must be above 0");
  }
  return check_readable(spec.readable);
}

// ---- the maps of the user namespace: inside we are user 1000, outside ourselves, or nobody when root ----

struct IdMaps {
  bool root = geteuid() == 0;
  std::string uid = "1000 " + std::to_string(root ? 65534 : geteuid()) + " 1";
  std::string gid = "1000 " + std::to_string(root ? 65534 : getegid()) + " 1";
};

Result<Isolation> find_isolation() {
  const IdMaps maps;
  sandbox::Step step{};
  const int error =
      sandbox::probe(Isolation::kUserNamespace, maps.root, maps.uid.c_str(), maps.gid.c_str(), &step);
  if (error == 0) return Isolation::kUserNamespace;
  std::string why = std::string("user namespaces: ") + sandbox::step_name(step) + ": " + reason(error);
  if (maps.root) {
    const int root_error =
        sandbox::probe(Isolation::kRootNamespace, true, maps.uid.c_str(), maps.gid.c_str(), &step);
    if (root_error == 0) return Isolation::kRootNamespace;
    why += std::string("; as root: ") + sandbox::step_name(step) + ": " + reason(root_error);
  }
  return unsupported(
      "no way to isolate a program here (" + why +
      "); allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
      "or the container's seccomp profile)");
}

// ---- running ----

enum class Read { kSome, kNothingYet, kEnd };

Read read_some(int fd, void* out, size_t size, size_t* got) {
  const ssize_t n = read(fd, out, size);
  *got = n > 0 ? static_cast<size_t>(n) : 0;
  if (n > 0) return Read::kSome;
  return n < 0 && (errno == EINTR || errno == EAGAIN) ? Read::kNothingYet : Read::kEnd;
}

struct Stream {
  Fd fd;
  std::string* text = nullptr;
  bool over = false;  // more came than may be kept

  Read drain(uint64_t limit) {
    std::array<char, 16384> buffer;
    size_t got = 0;
    const Read state = read_some(fd.get(), buffer.data(), buffer.size(), &got);
    const size_t room = static_cast<size_t>(limit - text->size());
    text->append(buffer.data(), std::min(got, room));
    over = over || got > room;
    if (state == Read::kEnd) fd.reset();
    return state;
  }
};

class Run {
 public:
  Run(const SandboxSpec& spec, const StopPolicy& stop) : spec_(spec), stop_(stop) {}

  Result<SandboxResult> run(Preparation& prep) {
    ISTHMUS_RETURN_IF_ERROR(start(prep));
    const Status stopped = watch();
    leash_.reset();  // the keeper kills whatever is left
    while (waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
    }
    finish_output();
    ISTHMUS_RETURN_IF_ERROR(stopped);
    return report(prep);
  }

 private:
  Status start(Preparation& prep) {
    ISTHMUS_ASSIGN_OR_RETURN(Fd input, make_input(spec_.input));
    ISTHMUS_ASSIGN_OR_RETURN(Pipe out, make_pipe());
    ISTHMUS_ASSIGN_OR_RETURN(Pipe err, make_pipe());
    ISTHMUS_ASSIGN_OR_RETURN(Pipe status, make_pipe());
    ISTHMUS_ASSIGN_OR_RETURN(Pipe leash, make_pipe());
    const IdMaps maps;
    prep.plan.root = maps.root;
    prep.plan.uid_map = maps.uid.c_str();
    prep.plan.gid_map = maps.gid.c_str();
    prep.plan.input_fd = input.get();
    prep.plan.out_fd = out.write.get();
    prep.plan.err_fd = err.write.get();
    prep.plan.status_fd = status.write.get();
    prep.plan.leash_fd = leash.read.get();
    begin_ = Clock::now();
    keeper_ = fork();
    if (keeper_ == 0) sandbox::run_keeper(prep.plan);
    if (keeper_ < 0) return io_error("sandbox: cannot fork: " + reason(errno));
    streams_[0] = {std::move(out.read), &result_.out};
    streams_[1] = {std::move(err.read), &result_.err};
    status_ = std::move(status.read);
    leash_ = std::move(leash.write);
    for (const int fd : {streams_[0].fd.get(), streams_[1].fd.get(), status_.get()}) {
      fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return ok_status();
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Until the status pipe ends (init is gone) or something has to be stopped.
  Status watch() {
    while (true) {
      ISTHMUS_RETURN_IF_ERROR(stop_.check());
      if (seconds() >= spec_.limits.wall_seconds) {
        early_end_ = SandboxEnd::kWallLimit;
        return ok_status();
      }
      std::array<pollfd, 3> watched = {pollfd{status_.get(), POLLIN, 0},
                                       pollfd{streams_[0].fd.get(), POLLIN, 0},
                                       pollfd{streams_[1].fd.get(), POLLIN, 0}};
      if (poll(watched.data(), watched.size(), static_cast<int>(kPoll.count())) < 0 && errno != EINTR) {
        return io_error("sandbox: poll: " + reason(errno));
      }
      for (size_t i = 0; i < streams_.size(); ++i) {
        if (watched[i + 1].revents != 0) streams_[i].drain(spec_.limits.output_bytes);
        if (streams_[i].over) {
          early_end_ = SandboxEnd::kOutputLimit;
          return ok_status();
        }
      }
      if (watched[0].revents != 0 && read_status() == Read::kEnd) return ok_status();
    }
  }

  // The first record counts: a failed step, or the end of the program.
  Read read_status() {
    Record record;
    size_t got = 0;
    const Read state = read_some(status_.get(), &record, sizeof record, &got);
    if (got == sizeof record && !record_) record_ = record;
    return state;
  }

  // All writers are dead; what is left in the pipes is final.
  void finish_output() {
    while (read_status() == Read::kSome) {
    }
    for (Stream& stream : streams_) {
      while (stream.fd.get() >= 0 && !stream.over && stream.drain(spec_.limits.output_bytes) == Read::kSome) {
      }
      if (stream.over && !early_end_) early_end_ = SandboxEnd::kOutputLimit;
    }
  }

  Result<SandboxResult> report(const Preparation& prep) {
    result_.wall_seconds = seconds();
    if (record_ && record_->kind == Record::kFailed) return setup_error(prep);
    if (early_end_) {
      result_.end = *early_end_;
      result_.signal = SIGKILL;
      return std::move(result_);
    }
    if (!record_)
      return io_error("sandbox: its first process vanished (killed from outside, or out of memory)");
    result_.cpu_seconds = 1e-6 * static_cast<double>(record_->cpu_microseconds);
    result_.peak_bytes = static_cast<uint64_t>(record_->peak_kib) * 1024;
    if (WIFSIGNALED(record_->value)) {
      result_.signal = WTERMSIG(record_->value);
      const bool cpu = result_.signal == SIGXCPU ||
                       (result_.signal == SIGKILL && result_.cpu_seconds >= spec_.limits.cpu_seconds);
      result_.end = cpu ? SandboxEnd::kCpuLimit : SandboxEnd::kSignalled;
    } else {
      result_.exit_code = WEXITSTATUS(record_->value);
    }
    return std::move(result_);
  }

  Status setup_error(const Preparation& prep) const {
    const auto item = static_cast<size_t>(record_->item);
    std::string what = std::string("sandbox: ") + sandbox::step_name(record_->step);
    if (record_->item >= 0 && item < prep.plan.binds.size())
      what += std::string(" ") + prep.plan.binds[item].source;
    what += ": " + reason(record_->value);
    if (record_->step == sandbox::Step::kExec) {
      return not_found(what + ": " + spec_.argv[0] + " (is it below /usr or one of the readable paths?)");
    }
    return unsupported(what);
  }

  const SandboxSpec& spec_;
  const StopPolicy& stop_;
  SandboxResult result_;
  std::array<Stream, 2> streams_;
  Fd status_, leash_;
  pid_t keeper_ = -1;
  Clock::time_point begin_;
  std::optional<Record> record_;
  std::optional<SandboxEnd> early_end_;
};

}  // namespace

std::string_view sandbox_end_name(SandboxEnd end) {
  switch (end) {
    case SandboxEnd::kExited:
      return "exited";
    case SandboxEnd::kSignalled:
      return "signalled";
    case SandboxEnd::kCpuLimit:
      return "cpu_limit";
    case SandboxEnd::kWallLimit:
      return "wall_limit";
    case SandboxEnd::kOutputLimit:
      return "output_limit";
  }
  return "unknown";
}

Result<Isolation> sandbox_isolation() {
  static const Result<Isolation> found = find_isolation();
  return found;
}

Result<SandboxResult> run_sandboxed(const SandboxSpec& spec, const StopPolicy& stop) {
  ISTHMUS_RETURN_IF_ERROR(check_spec(spec));
  ISTHMUS_ASSIGN_OR_RETURN(const Isolation isolation, sandbox_isolation());
  Preparation prep;
  ISTHMUS_RETURN_IF_ERROR(prepare(spec, isolation, prep));
  return Run(spec, stop).run(prep);
}

}  // namespace isthmus
