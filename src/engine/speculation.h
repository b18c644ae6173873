// Reading generated tokens several at a time: drafts are verified in one step, and only what the sampler drew
// itself becomes text (Proposer × Verifier × Rule of docs/speculation.md).
//
// The rule is lossless by construction: every token is drawn by the run's own sampler from the logits of the
// very text before it; a drafted token that equals the drawn one merely has its logits already. Verified
// tokens are generation tokens, of the same arithmetic and the same bits as one by one, so a run with
// speculation gives the text, log-probabilities and finish reason of the run without. Not thread-safe; the
// session outlives the reader.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/draft_controller.h"
#include "engine/proposer.h"
#include "engine/session.h"

namespace isthmus {

/// Speculation by looking up the text's own repetitions.
struct SpeculateOptions {
  /// Most tokens drafted at once; 0: no speculation. At most ModelOptions::draft_tokens.
  size_t max_draft = 0;
  /// Shortest repetition whose continuation is proposed, in tokens.
  size_t min_match = 2;
  /// Seconds, any origin; empty: the monotonic clock. Decides how much is drafted, never what the text is.
  std::function<double()> clock;
};

struct SpeculationFigures {
  size_t drafted = 0;   // tokens verified beside those of plain steps
  size_t accepted = 0;  // of them, those that became text
  size_t steps = 0;     // verifying steps
};

class SpeculativeReader {
 public:
  /// kInvalidArgument when the model was opened for shorter drafts, kResourceExhausted without the memory.
  static Result<std::unique_ptr<SpeculativeReader>> create(Session& session, const SpeculateOptions& options);
  /// With a proposer of the caller's.
  static Result<std::unique_ptr<SpeculativeReader>> create(Session& session, const SpeculateOptions& options,
                                                           std::unique_ptr<Proposer> proposer);

  /// The text begins with these tokens, all of them read or about to be read by the caller.
  void begin(std::span<const TokenId> text);
  /// What the next token has to be drawn from.
  std::span<const float> logits() const;
  /// `token` was drawn from logits(). True: it was drafted and logits() are now those after it. False: the
  /// session holds the text before it, and read() has to follow.
  bool take(TokenId token);
  /// Reads the token that take() refused, with a draft of at most `most` tokens behind it when that pays.
  Status read(TokenId token, size_t most);
  /// Leaves the session with what was drawn from, and forgets the rest of a draft.
  void settle();

  const SpeculationFigures& figures() const { return figures_; }

 private:
  SpeculativeReader(Session& session, SpeculateOptions options, std::unique_ptr<Proposer> proposer)
      : session_(session),
        options_(std::move(options)),
        proposer_(std::move(proposer)),
        controller_(options_.max_draft),
        chain_(options_.max_draft + 1) {}
  double now() const;
  Status read_plain();
  void note_guess(TokenId token);

  Session& session_;
  SpeculateOptions options_;
  std::unique_ptr<Proposer> proposer_;
  DraftController controller_;
  SpeculationFigures figures_;
  Charge charge_;
  std::vector<TokenId> chain_;  // the token to read, then what is proposed behind it
  Draft guess_;                 // of the tokens behind it
  size_t verified_ = 0;         // tokens of chain_ in the step under way; 0: a plain step
  size_t row_ = 0;              // of that step: the newest token that became text
  double step_seconds_ = 0;
};

}  // namespace isthmus
