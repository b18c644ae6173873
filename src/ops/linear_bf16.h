// How the driver of ops/linear.h runs products of class `fast` (Compute::kBf16). Private to linear.cc.
//
// A group of panels is expanded to bfloat16 tiles in the thread's scratch and run over all strips of tokens.
// A panel too wide for the scratch is expanded piece by piece, once for every two strips; the bits are the
// same. Pure but for its outputs; any thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "ops/linear.h"

namespace isthmus {

/// One matrix of a product, or one of the two of a gated layer.
struct Bf16Lane {
  const std::byte* panels;
  size_t panel_bytes;
  ExpandKernel expand;
};

/// Least scratch for `lanes` matrices.
constexpr size_t bf16_scratch_bytes(size_t lanes) { return lanes * 8 * kBf16BlockBytes; }

class Bf16Run {
 public:
  Bf16Run(std::span<const Bf16Lane> lanes, const Activations& x, std::byte* scratch, size_t scratch_bytes)
      : lanes_(lanes), x_(x), scratch_(scratch), blocks_((x.cols() + kBlockCols - 1) / kBlockCols) {
    const size_t fit = scratch_bytes / kBf16BlockBytes / lanes.size();
    whole_ = blocks_ <= fit;
    most_ = whole_ ? std::clamp<size_t>(fit / blocks_, 1, kMostPanels) : 1;
    chunk_ = whole_ ? blocks_ : fit / 8 * 8;  // whole units of every format
  }

  /// Calls finish(panel, tile, acc[tile tokens][16], acc of the second lane) for each result of the panels
  /// [first, last).
  template <class Finish>
  void run(size_t first, size_t last, const Finish& finish) {
    const size_t strips = (x_.tokens() + kStripTokens - 1) / kStripTokens;
    for (size_t panel = first; panel < last; panel += most_) {
      const size_t count = std::min(most_, last - panel);
      if (whole_) expand(panel, count, 0, blocks_);
      for (size_t strip = 0; strip < strips; strip += kStrips) {
        const size_t n = std::min(kStrips, strips - strip);
        multiply(panel, count, strip, n);
        for (size_t p = 0; p < count; ++p) {
          for (size_t half = 0; half < 2 * n; ++half) {
            const size_t tile = 2 * strip + half;
            const size_t at = (2 * p * n + half) * kMaxTokens * kPanelRows;
            if (tile < x_.tiles()) finish(panel + p, tile, acc_[0] + at, acc_[1] + at);
          }
        }
      }
    }
  }

 private:
  static constexpr size_t kMostPanels = 8;
  static constexpr size_t kStrips = 2;  // at once
  static_assert(kStripTokens == 2 * kMaxTokens);

  std::byte* slot(size_t lane, size_t panel) const {
    return scratch_ + (lane * most_ + panel) * chunk_ * kBf16BlockBytes;
  }

  void expand(size_t panel, size_t count, size_t block, size_t blocks) const {
    for (size_t l = 0; l < lanes_.size(); ++l) {
      for (size_t p = 0; p < count; ++p) {
        lanes_[l].expand(lanes_[l].panels + (panel + p) * lanes_[l].panel_bytes, x_.cols(), block, blocks,
                         slot(l, p));
      }
    }
  }

  /// acc_[lane][panel][strip] = the products of `count` panels and `n` strips.
  void multiply(size_t panel, size_t count, size_t strip, size_t n) {
    const size_t tile = 2 * strip;
    for (size_t l = 0; l < lanes_.size(); ++l) {
      std::memset(acc_[l], 0, count * n * kStripTokens * kPanelRows * sizeof(float));
    }
    for (size_t block = 0; block < blocks_; block += chunk_) {
      const size_t blocks = std::min(chunk_, blocks_ - block);
      if (!whole_) expand(panel, count, block, blocks);
      const TileStrips records = {x_.record(tile, 0, block), x_.tile_stride(tile), n, x_.strip_bytes()};
      for (size_t l = 0; l < lanes_.size(); ++l) {
        x_.kernels().dot_bf16({slot(l, 0), chunk_ * kBf16BlockBytes, count, blocks}, records, acc_[l]);
      }
    }
  }

  std::span<const Bf16Lane> lanes_;
  const Activations& x_;
  std::byte* scratch_;
  size_t blocks_;
  bool whole_;
  size_t most_;   // panels at once
  size_t chunk_;  // blocks of a panel that are expanded at once
  alignas(64) float acc_[2][kMostPanels * kStrips * kStripTokens * kPanelRows];
};

}  // namespace isthmus
