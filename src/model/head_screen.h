// The screen of a model's output head (ops/screen.h): kept in a file beside the packed weights, or made once
// from hidden states that the model has for a built-in text.
//
// start() gives the work to one thread; until it is done, and when it fails, the head is computed in full,
// which gives the same logits. Reading a file takes some ten milliseconds. Making a screen takes seconds:
// that runs where a CPU has nothing else to do, and whoever destroys this object waits until the file is
// written or the stop policy ends it. Memory is charged to the ledger before it is taken. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ledger.h"
#include "model/packed_cache.h"
#include "model/transformer.h"

namespace isthmus {

enum class HeadState : uint8_t {
  kOff,       // not asked for, or not possible: the reason is in the report
  kIdle,      // nobody has generated yet
  kStarting,  // being read or made
  kReady,
  kFailed,
};
/// "off", "idle", "starting", "ready", "failed".
std::string_view head_state_name(HeadState state);

struct HeadReport {
  HeadState state = HeadState::kOff;
  std::string reason;  // off, failed: why
  bool from_file = false;
  uint64_t bytes = 0;  // of the screen, when there is or will be one
  double seconds = 0;  // that reading or making it took
};

class ScreenMoments;

class HeadScreen {
 public:
  /// Off, with a reason.
  explicit HeadScreen(std::string why_off);
  /// `calibration` is a text of at most a few thousand tokens, read in pieces of at most `context`. All
  /// references outlive this.
  HeadScreen(Transformer& model, const GgufFile& file, const PackedCacheOptions& cache, Ledger& ledger,
             std::vector<TokenId> calibration, size_t context, size_t threads, StopPolicy stop);
  ~HeadScreen();
  HeadScreen(const HeadScreen&) = delete;
  HeadScreen& operator=(const HeadScreen&) = delete;

  /// What a screen of this model's head would take beside the weights, in memory; 0, and why, when there can
  /// be none.
  static uint64_t planned_bytes(const Transformer& model, std::string* why_not);

  /// Starts the work, once.
  void start();
  /// Waits for it.
  void wait();
  HeadReport report() const;

 private:
  void work();
  Status read();
  Status make();
  Status add_moments(ThreadPool& pool, ScreenMoments& moments);
  void publish(bool from_file);
  void set(HeadState state, const std::string& reason);

  Transformer* model_ = nullptr;
  Ledger* ledger_ = nullptr;
  const std::vector<TokenId> calibration_;
  const size_t context_ = 0;
  const size_t threads_ = 1;
  const StopPolicy stop_;
  Charge charge_;
  HugeArena arena_;
  std::unique_ptr<Screen> screen_;
  PackedCache cache_;  // reads the arena until it is gone
  std::once_flag started_;
  std::mutex joining_;
  mutable std::mutex mutex_;
  HeadReport report_;  // under mutex_
  std::thread worker_;
};

}  // namespace isthmus
