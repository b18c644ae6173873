// sessions: how soon one of many sessions is back that share memory for a few, and what their codes cost.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "apps/isthmus/eval_rows.h"
#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/figures.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/prefix_args.h"
#include "apps/isthmus/progress.h"
#include "base/rng.h"
#include "engine/session_store.h"
#include "os/paths.h"
#include "store/sha256.h"

namespace isthmus::cli {
namespace {

using SessionsClock = std::chrono::steady_clock;

constexpr size_t kProbedSessions = 8;
constexpr size_t kProbedTokens = 32;

double sessions_seconds_since(SessionsClock::time_point start) {
  return std::chrono::duration<double>(SessionsClock::now() - start).count();
}

/// A folder for records that is gone with this.
class ScratchTier {
 public:
  static Result<ScratchTier> make() {
    ScratchTier out;
    ISTHMUS_ASSIGN_OR_RETURN(const std::string cache, standard_path(Place::kCache));
    ISTHMUS_ASSIGN_OR_RETURN(out.parent_, posix_folder(cache, true));
    ISTHMUS_RETURN_IF_ERROR(out.parent_->remove_tree(kName));
    ISTHMUS_ASSIGN_OR_RETURN(out.tier_, KvTier::open(cache + "/" + kName));
    return out;
  }
  ScratchTier(ScratchTier&&) = default;
  ScratchTier& operator=(ScratchTier&&) = default;
  ~ScratchTier() {
    tier_.reset();
    if (parent_ != nullptr) (void)parent_->remove_tree(kName);
  }
  KvTier& tier() { return *tier_; }

 private:
  static constexpr const char* kName = "eval-sessions";
  ScratchTier() = default;
  std::shared_ptr<Folder> parent_;
  std::unique_ptr<KvTier> tier_;
};

struct SessionsRow {
  int bits = 16;
  std::vector<double> switches;
  std::vector<double> parks;
  size_t memory_tokens = 0;
  size_t stored_tokens = 0;
  size_t computed_tokens = 0;
  uint64_t bytes = 0;  // on disk, of all sessions
  double kl = 0;
  size_t same = 0;
  size_t probed = 0;
};

/// Many sessions over texts cut out of one.
class SessionsBench {
 public:
  SessionsBench(const EvalArgs& args, std::shared_ptr<LanguageModel> model, std::vector<TokenId> text,
                const Digest& digest)
      : args_(args), model_(std::move(model)), text_(std::move(text)), digest_(digest) {}

  Result<SessionsRow> run(int bits, const StopPolicy& stop, ProgressBar& bar) {
    SessionsRow row;
    row.bits = bits;
    ISTHMUS_ASSIGN_OR_RETURN(ScratchTier scratch, ScratchTier::make());
    SessionStoreOptions options;
    options.bits = bits;
    options.tier = &scratch.tier();
    options.digest = sha256_digest;
    options.model = digest_;
    ISTHMUS_ASSIGN_OR_RETURN(const auto store, SessionStore::create(model_, options));
    ISTHMUS_RETURN_IF_ERROR(make_sessions(*store, stop, bar, row));
    row.bytes = scratch.tier().figures().bytes;
    Rng rng(1);
    for (size_t i = 0; i < args_.switches; ++i) {
      bar.show_steps("switches", i, args_.switches);
      ISTHMUS_RETURN_IF_ERROR(store->park().status());
      const size_t number = static_cast<size_t>(rng() % args_.sessions);
      ISTHMUS_ASSIGN_OR_RETURN(const SwitchFigures figures, store->activate(name_of(number), stop));
      row.switches.push_back(figures.seconds);
      row.memory_tokens += figures.memory_tokens;
      row.stored_tokens += figures.stored_tokens;
      row.computed_tokens += figures.computed_tokens;
    }
    for (size_t i = 0; i < std::min(kProbedSessions, args_.sessions); ++i) {
      ISTHMUS_RETURN_IF_ERROR(store->activate(name_of(i), stop).status());
      ISTHMUS_RETURN_IF_ERROR(probe(*store, i, stop, row));
    }
    return row;
  }

  /// Seconds to read a session's text from its beginning.
  Result<std::vector<double>> recompute(const StopPolicy& stop) {
    std::vector<double> out;
    ISTHMUS_ASSIGN_OR_RETURN(const auto session, Session::create(model_));
    for (size_t i = 0; i < std::min(kProbedSessions, args_.sessions); ++i) {
      ISTHMUS_RETURN_IF_ERROR(session->truncate(0));
      const auto start = SessionsClock::now();
      ISTHMUS_RETURN_IF_ERROR(session->append(part(i), Purpose::kPrompt, stop));
      out.push_back(sessions_seconds_since(start));
      rows_.emplace_back();
      for (const TokenId token : next(i)) {
        rows_.back().push_back(log_probabilities(session->logits()));
        ISTHMUS_RETURN_IF_ERROR(session->append({&token, 1}, Purpose::kGeneration, stop));
      }
    }
    return out;
  }

 private:
  static std::string name_of(size_t number) { return "s" + std::to_string(number); }
  size_t length() const { return args_.lengths.front(); }
  std::span<const TokenId> part(size_t number) const {
    const size_t places = text_.size() - length() - kProbedTokens;
    return std::span(text_).subspan(number * length() % places, length());
  }
  std::span<const TokenId> next(size_t number) const {
    const auto it = part(number);
    return {it.data() + it.size(), kProbedTokens};
  }

  Status make_sessions(SessionStore& store, const StopPolicy& stop, ProgressBar& bar, SessionsRow& row) {
    for (size_t i = 0; i < args_.sessions; ++i) {
      bar.show_steps("sessions", i, args_.sessions);
      ISTHMUS_RETURN_IF_ERROR(store.activate(name_of(i), stop).status());
      ISTHMUS_RETURN_IF_ERROR(store.session().append(part(i), Purpose::kPrompt, stop));
      ISTHMUS_ASSIGN_OR_RETURN(const ParkFigures parked, store.park());
      if (!parked.reason.empty())
        return failed_precondition("a session could not be stored: " + parked.reason);
      row.parks.push_back(parked.seconds);
    }
    return ok_status();
  }

  /// What a session that came back says to the text that follows, beside one that was never put away.
  Status probe(SessionStore& store, size_t number, const StopPolicy& stop, SessionsRow& row) {
    // The newest logits went when it was put away: the last token is read anew.
    Session& session = store.session();
    ISTHMUS_RETURN_IF_ERROR(session.recompute_last(stop));
    size_t i = 0;
    for (const TokenId token : next(number)) {
      const std::vector<double> p = log_probabilities(session.logits());
      const std::vector<double>& want = rows_[number][i++];
      row.kl += divergence(want, p);
      row.same += likeliest_token(p) == likeliest_token(want) ? 1 : 0;
      ++row.probed;
      ISTHMUS_RETURN_IF_ERROR(session.append({&token, 1}, Purpose::kGeneration, stop));
    }
    return session.truncate(length());
  }

  const EvalArgs& args_;
  std::shared_ptr<LanguageModel> model_;
  std::vector<TokenId> text_;
  Digest digest_;
  std::vector<std::vector<std::vector<double>>> rows_;  // [session][token]
};

void print_sessions(const EvalArgs& args, const std::vector<SessionsRow>& rows, double whole, bool json) {
  Table table({"bits", "switch p50", "p99", "sooner", "memory", "flash", "computed", "put away", "a session",
               "KL", "same top"});
  table.align_right({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  auto list = nlohmann::ordered_json::array();
  for (const SessionsRow& row : rows) {
    const double all =
        static_cast<double>(std::max<size_t>(row.memory_tokens + row.stored_tokens + row.computed_tokens, 1));
    const double p50 = quantile(row.switches, 0.5);
    const double kl = row.kl / static_cast<double>(row.probed);
    const double same = static_cast<double>(row.same) / static_cast<double>(row.probed);
    const std::string bits = row.bits == kMixedBits ? "mixed" : std::to_string(row.bits);
    const uint64_t each = row.bytes / args.sessions;
    list.push_back({{"bits", bits},
                    {"switch_p50_ms", 1e3 * p50},
                    {"switch_p99_ms", 1e3 * quantile(row.switches, 0.99)},
                    {"sooner", whole / p50},
                    {"from_memory", static_cast<double>(row.memory_tokens) / all},
                    {"from_flash", static_cast<double>(row.stored_tokens) / all},
                    {"computed", static_cast<double>(row.computed_tokens) / all},
                    {"park_p50_ms", 1e3 * quantile(row.parks, 0.5)},
                    {"stored_bytes", each},
                    {"mean_kl", kl},
                    {"same_top", same}});
    table.add({bits, fmt::format("{:.1f} ms", 1e3 * p50),
               fmt::format("{:.1f} ms", 1e3 * quantile(row.switches, 0.99)),
               fmt::format("{:.0f}", whole / p50),
               fmt::format("{:.0f} %", 100 * static_cast<double>(row.memory_tokens) / all),
               fmt::format("{:.0f} %", 100 * static_cast<double>(row.stored_tokens) / all),
               fmt::format("{:.0f} %", 100 * static_cast<double>(row.computed_tokens) / all),
               fmt::format("{:.0f} ms", 1e3 * quantile(row.parks, 0.5)), human_bytes(each),
               fmt::format("{:.5f}", kl), fmt::format("{:.1f} %", 100 * same)});
  }
  if (json) {
    print_json({{"model", args.model.model},
                {"sessions", args.sessions},
                {"tokens", args.lengths.front()},
                {"room", args.session_room},
                {"switches", args.switches},
                {"recompute_ms", 1e3 * whole},
                {"rows", list}});
    return;
  }
  fmt::print("{} sessions of {} tokens, memory for {}; one computed anew as a whole: {:.0f} ms\n",
             args.sessions, args.lengths.front(), args.session_room, 1e3 * whole);
  table.print();
}

}  // namespace

Status eval_sessions(const EvalArgs& args, const Context& context) {
  if (args.file.empty()) return invalid_argument("sessions needs a text");
  std::vector<int> kinds;
  for (const std::string& text : args.session_bits) {
    const auto bits = parse_session_bits(text);
    if (!bits.ok()) return bits.status().with_context("--session-bits");
    kinds.push_back(*bits);
  }
  const size_t length = args.lengths.front();
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_input(args.file));
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  options.context = length + 2 * kBlockKeys + kProbedTokens;
  // Beside the parked ones, the active session and the one that it is compared with.
  options.kv_tokens = args.session_room * length + options.context;
  options.kv_levels = session_levels(kMixedBits);
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, model_path(args.model.model, args.model.store, context));
  ISTHMUS_ASSIGN_OR_RETURN(const Digest digest, model_digest(path, context));
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(args.model, std::move(options), context));
  std::vector<TokenId> tokens = model->tokenizer().encode(text, Specials::kAsText, false);
  if (tokens.size() < 2 * (length + kProbedTokens)) {
    return invalid_argument("the text has " + std::to_string(tokens.size()) +
                            " tokens, too few for sessions of " + std::to_string(length));
  }
  SessionsBench bench(args, model, std::move(tokens), digest);
  StopPolicy stop;
  stop.token = context.stop;
  ProgressBar bar(context.json);
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<double> whole, bench.recompute(stop));
  std::vector<SessionsRow> rows;
  for (const int bits : kinds) {
    ISTHMUS_ASSIGN_OR_RETURN(SessionsRow row, bench.run(bits, stop, bar));
    rows.push_back(std::move(row));
  }
  bar.finish();
  print_sessions(args, rows, quantile(whole, 0.5), context.json);
  return ok_status();
}

}  // namespace isthmus::cli
