// A progress bar on standard error: one line that is redrawn on a terminal, a line now and then without one.
//
// Not thread-safe. Erased or ended by finish() or the destructor, so that what is printed next begins on a
// fresh line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace isthmus::cli {

class ProgressBar {
 public:
  /// `quiet`: shows nothing at all.
  explicit ProgressBar(bool quiet);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  /// `done` of `total` bytes (0: not known); the rate is measured over the last seconds of one and the same
  /// label.
  void show(const std::string& label, uint64_t done, uint64_t total);
  /// `done` of `total` things that are not bytes.
  void show_steps(const std::string& label, uint64_t done, uint64_t total);
  /// A whole line above the bar.
  void say(const std::string& line);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string text(const std::string& label, uint64_t done, uint64_t total) const;

  bool quiet_;
  bool bytes_ = true;
  bool terminal_;
  bool drawn_ = false;
  std::string label_;
  Clock::time_point next_{};
  Clock::time_point rate_from_{};
  uint64_t rate_bytes_ = 0;
  double rate_ = 0;  // bytes per second
};

}  // namespace isthmus::cli
