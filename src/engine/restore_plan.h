// Which parts of a session that is brought back are read from disk and which are computed anew: the
// swap-recompute pipeline of LLMS (Yin et al. 2024, arXiv 2403.11805), and which parts bear how few bits.
//
// Pure functions and plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isthmus {

/// What a restore costs, as measured: seconds of computing and of reading.
struct RestoreSpeeds {
  double compute_per_token = 2e-3;
  double read_per_record = 5e-4;
  double read_per_byte = 2e-9;

  /// Takes a measurement in, the newer the more.
  void computed(size_t tokens, double seconds);
  void read(size_t records, uint64_t bytes, double seconds);
};

/// A part of a session that is not in memory, in the order of the text.
struct MissingPart {
  size_t tokens = 0;
  size_t records = 0;  // to be read, 0: it must be computed
  uint64_t bytes = 0;
};

/// How many of the first missing parts are computed while the others are read, so that the later of the two
/// ends soonest. Computed ones come first because a token needs those before it, and so waits for no reading.
/// Parts that must be computed are, whatever the result.
size_t plan_restore(std::span<const MissingPart> missing, const RestoreSpeeds& speeds);
/// Seconds of a restore that computes the first `computed` missing parts.
double restore_seconds(std::span<const MissingPart> missing, size_t computed, const RestoreSpeeds& speeds);

/// Bits of each part of a text by its density (attention that it receives; more is denser): LLMS's three
/// levels 8, 4, 2 with 4 in the mean, the densest parts getting the most. Where the loss is the same, fewer
/// parts leave 4 bits.
std::vector<int> bits_by_density(std::span<const double> density);

}  // namespace isthmus
