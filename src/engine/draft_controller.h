// How long a draft should be, so that verifying it pays, from what this run has shown so far.
//
// Costs: the time of a step with n rows relative to one with one row, learnt for each n. Acceptance: how
// often a drafted token was right, learnt by the length of the match before it; drafts that are not verified
// are compared with what is sampled all the same, so that this is learnt for free. A draft of k tokens of
// acceptances p1 … pk yields 1 + p1 + p1 p2 + … tokens for the price of a step with k + 1 rows; the k with
// the most tokens per time is taken, or none. Beside that an account is kept of the time lost to drafts that
// did not pay: while it exceeds kLossShare of the run, nothing is verified.
//
// Times are given by the caller, so that the same times give the same decisions. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace isthmus {

class DraftController {
 public:
  explicit DraftController(size_t max_draft);

  /// How many of `available` drafted tokens behind a match of `match` tokens to verify; 0: none.
  size_t choose(size_t match, size_t available);
  /// A step that read one token took `seconds`.
  void note_plain(double seconds);
  /// A step of `rows` tokens took `seconds` and gave `gained` tokens.
  void note_verified(size_t rows, size_t gained, double seconds);
  /// A token that was drafted behind a match of `match` tokens (the drafted ones before it counted in) was
  /// right or wrong.
  void note_token(size_t match, bool right);

  /// Time of a step with `rows` rows relative to one row, as known now.
  double relative_cost(size_t rows) const;
  /// Share of right tokens behind a match, as known now.
  double acceptance(size_t match) const;

  /// Share of the run's time that drafts may lose.
  static constexpr double kLossShare = 0.015;

 private:
  /// The median of the newest few of a series: one interrupted step must not decide.
  class Typical {
   public:
    void add(double value);
    void forget() { count_ = next_ = 0; }
    bool known() const { return count_ > 0; }
    double value() const;

   private:
    static constexpr size_t kKept = 5;
    std::array<double, kKept> values_{};
    size_t count_ = 0;
    size_t next_ = 0;
  };
  struct Bucket {
    double right = 0;
    double seen = 0;
  };

  static size_t bucket_of(size_t match);
  size_t most_rows() const;
  bool may_lose() const;
  size_t best_length(size_t match, size_t available, bool learnt_costs) const;

  size_t max_draft_;
  Typical plain_;                  // seconds of a step with one row
  std::vector<Typical> costs_;     // [rows] relative to plain_
  std::array<Bucket, 8> buckets_;  // by length of match
  double elapsed_ = 0;             // seconds of all steps
  double lost_ = 0;                // seconds that verifying took longer than plain steps; negative: saved
  size_t refused_ = 0;             // drafts refused for the learnt costs alone
  size_t forget_after_;
};

}  // namespace isthmus
