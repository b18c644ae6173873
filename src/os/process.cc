#include "os/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

extern char** environ;

namespace isthmus {
namespace {

using Clock = std::chrono::steady_clock;

std::string error_text(int error) { return std::generic_category().message(error); }

/// One pipe whose read end is non-blocking; keeps the last `limit` bytes that came through.
class OutputPipe {
 public:
  OutputPipe() = default;
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;
  ~OutputPipe() {
    close_end(ends_[0]);
    close_end(ends_[1]);
  }

  Status open() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) return io_error("making a pipe: " + error_text(errno));
    if (::fcntl(ends_[0], F_SETFL, O_NONBLOCK) != 0) return io_error("a pipe's mode: " + error_text(errno));
    return ok_status();
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() { close_end(ends_[1]); }

  void drain(size_t limit) {
    std::array<char, 8192> buffer;
    while (ends_[0] >= 0) {
      const ssize_t n = ::read(ends_[0], buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return close_end(ends_[0]);
      text_.append(buffer.data(), static_cast<size_t>(n));
      if (text_.size() > 2 * limit + buffer.size()) text_.erase(0, text_.size() - limit);
    }
  }
  std::string take(size_t limit) {
    if (text_.size() > limit) text_.erase(0, text_.size() - limit);
    return std::move(text_);
  }

 private:
  static void close_end(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  std::array<int, 2> ends_{-1, -1};
  std::string text_;
};

std::vector<std::string> merged_environment(const ProcessSpec& spec) {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [key, value] : spec.env) replaced |= name == key;
    if (!replaced) out.emplace_back(text);
  }
  for (const auto& [key, value] : spec.env) out.emplace_back(key).append(1, '=').append(value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (auto& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// Attributes and file actions of a spawn, freed on every way out.
struct SpawnSetup {
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  SpawnSetup() {
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_init(&actions);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
  }

  int prepare(int out, int err, const std::string& folder) {
    sigset_t none;
    sigset_t defaults;
    ::sigemptyset(&none);
    ::sigemptyset(&defaults);
    for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGHUP, SIGQUIT, SIGCHLD})
      ::sigaddset(&defaults, number);
    int error = ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (error == 0) error = ::posix_spawnattr_setpgroup(&attributes, 0);
    if (error == 0) error = ::posix_spawnattr_setsigmask(&attributes, &none);
    if (error == 0) error = ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    if (error == 0) error = ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, err, 2);
    if (error == 0 && !folder.empty())
      error = ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    if (error == 0) error = ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    return error;
  }
};

Result<pid_t> spawn(const ProcessSpec& spec, const OutputPipe& out, const OutputPipe& err) {
  SpawnSetup setup;
  std::vector<std::string> arguments = spec.argv;
  std::vector<std::string> environment = merged_environment(spec);
  pid_t pid = -1;
  int error = setup.prepare(out.writer(), err.writer(), spec.folder);
  if (error == 0) {
    error = ::posix_spawnp(&pid, arguments[0].c_str(), &setup.actions, &setup.attributes,
                           pointers(arguments).data(), pointers(environment).data());
  }
  if (error == ENOENT) return not_found("no program '" + spec.argv[0] + "' on PATH");
  if (error != 0) return io_error("starting '" + spec.argv[0] + "': " + error_text(error));
  return pid;
}

/// True when the child has ended; its wait status goes to `status`.
bool reap(pid_t pid, int options, int& status) {
  pid_t done = 0;
  do {
    done = ::waitpid(pid, &status, options);
  } while (done < 0 && errno == EINTR);
  return done == pid;
}

/// SIGTERM to the group, then SIGKILL after the grace time; the child is reaped.
void stop_group(pid_t pid, std::chrono::milliseconds grace) {
  ::kill(-pid, SIGTERM);
  int status = 0;
  const auto until = Clock::now() + grace;
  bool ended = reap(pid, WNOHANG, status);
  while (!ended && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ended = reap(pid, WNOHANG, status);
  }
  ::kill(-pid, SIGKILL);  // also whatever the child left behind in its group
  if (!ended) reap(pid, 0, status);
}

void wait_for_output(OutputPipe& out, OutputPipe& err, const ProcessSpec& spec) {
  std::array<pollfd, 2> fds{pollfd{out.reader(), POLLIN, 0}, pollfd{err.reader(), POLLIN, 0}};
  const bool open = fds[0].fd >= 0 || fds[1].fd >= 0;
  // A child may close its streams long before it ends: then wait in short steps instead.
  ::poll(fds.data(), fds.size(), open ? static_cast<int>(spec.poll.count()) : 5);
  out.drain(spec.max_output);
  err.drain(spec.max_output);
}

}  // namespace

Result<ProcessResult> run_process(const ProcessSpec& spec) {
  if (spec.argv.empty()) return invalid_argument("run_process: empty argv");
  ISTHMUS_RETURN_IF_ERROR(spec.stop.check());
  OutputPipe out;
  OutputPipe err;
  ISTHMUS_RETURN_IF_ERROR(out.open());
  ISTHMUS_RETURN_IF_ERROR(err.open());
  ISTHMUS_ASSIGN_OR_RETURN(const pid_t pid, spawn(spec, out, err));
  out.close_writer();
  err.close_writer();

  int status = 0;
  auto next_poll = Clock::now() + spec.poll;
  while (!reap(pid, WNOHANG, status)) {
    wait_for_output(out, err, spec);
    if (Status stop = spec.stop.check(); !stop.ok()) {
      stop_group(pid, spec.grace);
      return stop.with_context("running '" + spec.argv[0] + "'");
    }
    if (spec.on_poll && Clock::now() >= next_poll) {
      spec.on_poll();
      next_poll = Clock::now() + spec.poll;
    }
  }
  out.drain(spec.max_output);
  err.drain(spec.max_output);

  ProcessResult result;
  result.out = out.take(spec.max_output);
  result.err = err.take(spec.max_output);
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  result.exit_code = result.signal != 0 ? 128 + result.signal : WEXITSTATUS(status);
  return result;
}

}  // namespace isthmus
