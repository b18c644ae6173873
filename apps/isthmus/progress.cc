#include "apps/isthmus/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "apps/isthmus/output.h"
#include "os/terminal.h"

namespace isthmus::cli {
namespace {

constexpr auto kTerminalStep = std::chrono::milliseconds(100);
constexpr auto kPlainStep = std::chrono::seconds(5);
constexpr auto kRateStep = std::chrono::seconds(1);
constexpr size_t kBarWidth = 28;

std::string time_left(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds);
  return fmt::format("{}:{:02} left", whole / 60, whole % 60);
}

}  // namespace

ProgressBar::ProgressBar(bool quiet) : quiet_(quiet), terminal_(os::is_terminal(os::Stream::kError)) {}

ProgressBar::~ProgressBar() { finish(); }

std::string ProgressBar::text(const std::string& label, uint64_t done, uint64_t total) const {
  std::string out = label;
  if (total > 0) {
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const auto full = static_cast<size_t>(share * static_cast<double>(kBarWidth));
    if (terminal_) out += fmt::format(" [{}{}]", std::string(full, '#'), std::string(kBarWidth - full, ' '));
    out += bytes_ ? fmt::format(" {:3.0f} %  {} of {}", share * 100, human_bytes(done), human_bytes(total))
                  : fmt::format(" {:3.0f} %  {} of {}", share * 100, done, total);
  } else {
    out += "  " + human_bytes(done);
  }
  if (rate_ > 0 && bytes_) {
    out += fmt::format("  {}/s", human_bytes(static_cast<uint64_t>(rate_)));
    if (total > done) out += "  " + time_left(static_cast<double>(total - done) / rate_);
  }
  return out;
}

void ProgressBar::show(const std::string& label, uint64_t done, uint64_t total) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  if (label != label_ || done < rate_bytes_) {
    label_ = label;
    rate_from_ = now;
    rate_bytes_ = done;
    rate_ = 0;
    next_ = now;
  }
  if (now - rate_from_ >= kRateStep) {
    const double seconds = std::chrono::duration<double>(now - rate_from_).count();
    const double fresh = static_cast<double>(done - rate_bytes_) / seconds;
    rate_ = rate_ > 0 ? 0.7 * rate_ + 0.3 * fresh : fresh;
    rate_from_ = now;
    rate_bytes_ = done;
  }
  if (now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(kTerminalStep) : Clock::duration(kPlainStep));
  std::string line = text(label, done, total);
  if (!terminal_) {
    cli::say("{}\n", line);
    return;
  }
  const size_t width = os::terminal_columns(os::Stream::kError);
  if (line.size() >= width) line.resize(width - 1);
  cli::say("\r{}\x1b[K", line);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::show_steps(const std::string& label, uint64_t done, uint64_t total) {
  bytes_ = false;
  show(label, done, total);
}

void ProgressBar::say(const std::string& line) {
  if (quiet_) return;
  finish();
  cli::say("{}\n", line);
}

void ProgressBar::finish() {
  if (!drawn_) return;
  cli::say("\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace isthmus::cli
