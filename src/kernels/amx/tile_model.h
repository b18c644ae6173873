// The tile instructions in plain C++, after the operations that Intel publishes (SDM vol. 2: LDTILECFG,
// TILELOADD, TILESTORED, TILEZERO, TDPBSSD and its three relatives, TDPBF16PS), for machines without them.
//
// Every thread has registers and a configuration of its own. What the processor would answer with a fault
// (no configuration, shapes that do not fit each other, one register in two places) does nothing here and is
// counted. One known difference: the processor flushes a result that is below the smallest normal float
// before its last rounding, the model one that is below it after.
//
// TileMachine is one processor's tiles; ModelTiles is the policy class over this thread's. Thread-safe.
// Internal linkage, for the reason that kernels/CMakeLists.txt gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/amx/tile_config.h"
#include "kernels/generic/inline.h"

namespace isthmus {
namespace {

class TileMachine {
 public:
  enum class Sign { kSigned, kUnsigned };

  void load_config(const void* at) {
    TileConfig wanted;
    __builtin_memcpy(&wanted, at, sizeof(wanted));
    ++config_loads_;
    if (!is_valid(wanted)) return fault();
    config_ = wanted;
    __builtin_memset(tiles_, 0, sizeof(tiles_));
  }
  void store_config(void* at) const { __builtin_memcpy(at, &config_, sizeof(config_)); }
  void release() {
    config_ = TileConfig{};
    __builtin_memset(tiles_, 0, sizeof(tiles_));
  }

  void zero(size_t tile) {
    if (!is_ready(tile)) return fault();
    __builtin_memset(tiles_[tile], 0, kTileBytes);
  }
  void load(size_t tile, const void* at, size_t stride) {
    if (!is_ready(tile)) return fault();
    __builtin_memset(tiles_[tile], 0, kTileBytes);
    const auto* row = static_cast<const std::byte*>(at);
    for (size_t r = 0; r < config_.rows[tile]; ++r, row += stride) {
      __builtin_memcpy(tiles_[tile][r], row, config_.row_bytes[tile]);
    }
  }
  void store(size_t tile, void* at, size_t stride) {
    if (!is_ready(tile)) return fault();
    auto* row = static_cast<std::byte*>(at);
    for (size_t r = 0; r < config_.rows[tile]; ++r, row += stride) {
      __builtin_memcpy(row, tiles_[tile][r], config_.row_bytes[tile]);
    }
  }

  /// TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD: C[m][n] += the sum over k of A[m][4 k + i] B[k][4 n + i], i in 0..3,
  /// in integers of 32 bits.
  template <Sign kSignA, Sign kSignB>
  void dot_bytes(size_t c, size_t a, size_t b) {
    if (!fit(c, a, b)) return fault();
    for (size_t m = 0; m < config_.rows[c]; ++m) {
      uint32_t sum[kTileRowBytes / 4];
      __builtin_memcpy(sum, tiles_[c][m], kTileRowBytes);
      for (size_t k = 0; k < config_.row_bytes[a] / 4U; ++k) {
        uint32_t word[kTileRowBytes / 4];
        __builtin_memcpy(word, tiles_[b][k], kTileRowBytes);
        const uint8_t* four = tiles_[a][m] + 4 * k;
        for (size_t n = 0; n < kTileRowBytes / 4; ++n) {
          for (size_t i = 0; i < 4; ++i) {
            sum[n] += widen<kSignA>(four[i]) * widen<kSignB>(static_cast<uint8_t>(word[n] >> (8 * i)));
          }
        }
      }
      write_row(c, m, sum);
    }
  }

  /// TDPBF16PS: the even and the odd elements of the pairs make a float32 chain each, k ascending, rounded to
  /// nearest even; their sum is added to C. Subnormal numbers are zeros, on the way in and out.
  void dot_bf16(size_t c, size_t a, size_t b) {
    if (!fit(c, a, b)) return fault();
    for (size_t m = 0; m < config_.rows[c]; ++m) {
      float even[kTileRowBytes / 4] = {};
      float odd[kTileRowBytes / 4] = {};
      for (size_t k = 0; k < config_.row_bytes[a] / 4U; ++k) {
        uint32_t pair;
        __builtin_memcpy(&pair, tiles_[a][m] + 4 * k, sizeof(pair));
        const float a_even = to_float(pair << 16);
        const float a_odd = to_float(pair & 0xffff0000U);
        uint32_t pairs[kTileRowBytes / 4];
        __builtin_memcpy(pairs, tiles_[b][k], kTileRowBytes);
        for (size_t n = 0; n < kTileRowBytes / 4; ++n) {
          even[n] = flush(__builtin_fmaf(a_even, to_float(pairs[n] << 16), even[n]));
          odd[n] = flush(__builtin_fmaf(a_odd, to_float(pairs[n] & 0xffff0000U), odd[n]));
        }
      }
      uint32_t sum[kTileRowBytes / 4];
      __builtin_memcpy(sum, tiles_[c][m], kTileRowBytes);
      for (size_t n = 0; n < kTileRowBytes / 4; ++n) {
        sum[n] = __builtin_bit_cast(uint32_t, flush(to_float(sum[n]) + flush(even[n] + odd[n])));
      }
      write_row(c, m, sum);
    }
  }

  /// Times that load_config() was called, and instructions that the processor would have refused.
  uint64_t config_loads() const { return config_loads_; }
  uint64_t faults() const { return faults_; }

 private:
  void fault() { ++faults_; }

  static bool is_valid(const TileConfig& config) {
    if (config.palette != 1) return false;
    for (const uint8_t byte : config.reserved) {
      if (byte != 0) return false;
    }
    for (size_t i = 0; i < 16; ++i) {
      const bool unused = config.rows[i] == 0 && config.row_bytes[i] == 0;
      if (i >= kTiles && !unused) return false;
      if (config.rows[i] > kTileRows || config.row_bytes[i] > kTileRowBytes) return false;
      if ((config.rows[i] == 0) != (config.row_bytes[i] == 0)) return false;
    }
    return true;
  }
  bool is_ready(size_t tile) const { return tile < kTiles && config_.rows[tile] != 0; }
  bool fit(size_t c, size_t a, size_t b) const {
    if (!is_ready(c) || !is_ready(a) || !is_ready(b) || c == a || c == b || a == b) return false;
    return config_.row_bytes[a] % 4 == 0 && config_.row_bytes[b] % 4 == 0 &&
           config_.rows[a] == config_.rows[c] && config_.row_bytes[b] == config_.row_bytes[c] &&
           config_.row_bytes[a] / 4 == config_.rows[b];
  }
  void write_row(size_t tile, size_t row, const uint32_t* words) {
    __builtin_memset(tiles_[tile][row], 0, kTileRowBytes);
    __builtin_memcpy(tiles_[tile][row], words, config_.row_bytes[tile]);
  }

  template <Sign kSign>
  static ISTHMUS_INLINE uint32_t widen(uint8_t byte) {
    return kSign == Sign::kSigned ? static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(byte)))
                                  : uint32_t{byte};
  }
  /// A subnormal number becomes a zero of its sign.
  static ISTHMUS_INLINE uint32_t flush_bits(uint32_t bits) {
    return bits & ((bits & 0x7f800000U) == 0 ? 0x80000000U : 0xffffffffU);
  }
  static ISTHMUS_INLINE float to_float(uint32_t bits) { return __builtin_bit_cast(float, flush_bits(bits)); }
  static ISTHMUS_INLINE float flush(float value) { return to_float(__builtin_bit_cast(uint32_t, value)); }

  TileConfig config_{};
  alignas(64) uint8_t tiles_[kTiles][kTileRows][kTileRowBytes] = {};
  uint64_t config_loads_ = 0;
  uint64_t faults_ = 0;
};

/// HardwareTiles' twin.
struct ModelTiles {
  static TileMachine& machine() {
    static thread_local TileMachine machine_of_thread;
    return machine_of_thread;
  }

  static void use(const TileConfig& wanted) {
    TileConfig now;
    machine().store_config(&now);
    if (__builtin_memcmp(&now, &wanted, sizeof(now)) != 0) machine().load_config(&wanted);
  }
  template <int kTile>
  static void zero() {
    machine().zero(kTile);
  }
  template <int kTile>
  static void load(const void* at, size_t stride) {
    machine().load(kTile, at, stride);
  }
  template <int kTile>
  static void store(void* at, size_t stride) {
    machine().store(kTile, at, stride);
  }
  template <int kC, int kA, int kB>
  static void dot_signed_unsigned() {
    machine().dot_bytes<TileMachine::Sign::kSigned, TileMachine::Sign::kUnsigned>(kC, kA, kB);
  }
  template <int kC, int kA, int kB>
  static void dot_bf16() {
    machine().dot_bf16(kC, kA, kB);
  }
};

}  // namespace
}  // namespace isthmus
