#include "model/head_screen.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <system_error>

#include "model/packed_folder.h"
#include "model/workspace.h"
#include "ops/screen_build.h"
#include "os/cpu.h"

namespace isthmus {
namespace {

/// Tokens of the calibration text read together; each such piece is a text of its own.
constexpr size_t kPieceTokens = 256;

PackedEntry screen_entry(const PackedMatrix& head) {
  PackedEntry entry;
  entry.tensor = "screen of the output head";
  entry.type = kScreenVersion;
  entry.rows = head.rows;
  entry.cols = head.cols;
  entry.bytes = Screen::bytes(head.rows, head.cols);
  return entry;
}

}  // namespace

std::string_view head_state_name(HeadState state) {
  switch (state) {
    case HeadState::kOff:
      return "off";
    case HeadState::kIdle:
      return "idle";
    case HeadState::kStarting:
      return "starting";
    case HeadState::kReady:
      return "ready";
    case HeadState::kFailed:
      return "failed";
  }
  return "";
}

HeadScreen::HeadScreen(std::string why_off) { report_.reason = std::move(why_off); }

HeadScreen::HeadScreen(Transformer& model, const GgufFile& file, const PackedCacheOptions& cache,
                       Ledger& ledger, std::vector<TokenId> calibration, size_t context, size_t threads,
                       StopPolicy stop)
    : model_(&model),
      ledger_(&ledger),
      calibration_(std::move(calibration)),
      context_(context),
      threads_(threads),
      stop_(std::move(stop)),
      cache_(file, false, Screen::bytes(model.matrices().back()->rows, model.matrices().back()->cols),
             {screen_entry(*model.matrices().back())}, cache, stop_, kScreenSuffix) {
  report_.state = HeadState::kIdle;
  report_.bytes = screen_entry(*model.matrices().back()).bytes;
}

HeadScreen::~HeadScreen() {
  wait();
  if (model_ != nullptr) model_->use_screen(nullptr);
}

uint64_t HeadScreen::planned_bytes(const Transformer& model, std::string* why_not) {
  const auto& head = model.config();
  const auto format = model.head_format();
  *why_not = format.ok() ? Screen::refusal(*format, head.vocab, head.d_model) : format.status().message();
  if (!why_not->empty()) return 0;
  return HugeArena::resident_bytes(Screen::bytes(head.vocab, head.d_model));
}

void HeadScreen::start() {
  if (model_ == nullptr) return;
  std::call_once(started_, [this] {
    set(HeadState::kStarting, "");
    try {
      worker_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      set(HeadState::kFailed, std::string("no thread to make it: ") + error.what());
    }
  });
}

void HeadScreen::wait() {
  const std::lock_guard<std::mutex> lock(joining_);
  if (worker_.joinable()) worker_.join();
}

HeadReport HeadScreen::report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return report_;
}

void HeadScreen::set(HeadState state, const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  report_.state = state;
  report_.reason = reason;
}

void HeadScreen::work() {
  const auto start = std::chrono::steady_clock::now();
  auto charge = ledger_->charge(MemoryKind::kWeights, HugeArena::resident_bytes(report().bytes));
  if (!charge.ok()) return set(HeadState::kFailed, charge.status().message());
  charge_ = std::move(*charge);
  Status status = read();
  if (!status.ok()) {
    const std::string why_made = status.message();
    // Generating comes first; a refusal only means that this takes its turn with it.
    static_cast<void>(os::make_this_thread_background());
    status = make();
    if (status.ok()) set(HeadState::kReady, why_made);
  }
  if (!status.ok()) {
    charge_.reset();
    return set(HeadState::kFailed, status.message());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status HeadScreen::read() {
  ThreadPool pool(1, false);
  ISTHMUS_ASSIGN_OR_RETURN(HugeArena arena, cache_.read(pool));
  ISTHMUS_ASSIGN_OR_RETURN(Screen screen,
                           Screen::view(*model_->matrices().back(), {arena.data(), report().bytes}));
  arena_ = std::move(arena);
  screen_ = std::make_unique<Screen>(screen);
  publish(true);
  return ok_status();
}

Status HeadScreen::add_moments(ThreadPool& pool, ScreenMoments& moments) {
  const size_t d = model_->config().d_model;
  const size_t piece = std::min(kPieceTokens, context_);
  RunShape shape;
  shape.context = piece;
  shape.max_tokens = piece;
  shape.max_outputs = piece;
  ISTHMUS_ASSIGN_OR_RETURN(const auto blocks, model_->make_pool(shape, *ledger_));
  ISTHMUS_ASSIGN_OR_RETURN(const auto workspace, Workspace::create(*model_, shape, pool.size(), *ledger_));
  std::vector<float> hidden(piece * d);
  for (size_t at = 0; at < calibration_.size(); at += piece) {
    ISTHMUS_RETURN_IF_ERROR(stop_.check());
    const auto tokens = std::span(calibration_).subspan(at, std::min(piece, calibration_.size() - at));
    KvSequence kv = model_->make_sequence(blocks);
    ISTHMUS_RETURN_IF_ERROR(kv.grow(tokens.size()));
    std::vector<uint32_t> outputs(tokens.size());
    std::iota(outputs.begin(), outputs.end(), 0U);
    const ForwardSequence sequence{&kv, tokens, {}};
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = Compute::kInt16;
    step.outputs = outputs;
    step.hidden = hidden.data();
    const Status status = model_->forward(step, *workspace, pool);
    kv.commit(0);
    ISTHMUS_RETURN_IF_ERROR(status);
    moments.add(hidden.data(), tokens.size());
  }
  return ok_status();
}

Status HeadScreen::make() {
  ThreadPool pool(threads_, false);
  pool.run([](Worker& worker) {
    if (worker.index() != 0) static_cast<void>(os::make_this_thread_background());
  });
  const PackedMatrix& head = *model_->matrices().back();
  ScreenMoments moments(head.cols);
  ISTHMUS_RETURN_IF_ERROR(add_moments(pool, moments));
  ISTHMUS_ASSIGN_OR_RETURN(const ScreenBasis basis, screen_basis(moments, stop_));
  const uint64_t bytes = report().bytes;
  ISTHMUS_ASSIGN_OR_RETURN(arena_, HugeArena::allocate(static_cast<size_t>(bytes)));
  ISTHMUS_RETURN_IF_ERROR(
      build_screen(head, basis, pool, stop_, {arena_.data(), static_cast<size_t>(bytes)}));
  ISTHMUS_ASSIGN_OR_RETURN(Screen screen, Screen::view(head, {arena_.data(), static_cast<size_t>(bytes)}));
  screen_ = std::make_unique<Screen>(screen);
  publish(false);
  cache_.write({arena_.data(), static_cast<size_t>(bytes)});
  return ok_status();
}

void HeadScreen::publish(bool from_file) {
  set(HeadState::kReady, "");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    report_.from_file = from_file;
  }
  model_->use_screen(screen_.get());
}

}  // namespace isthmus
