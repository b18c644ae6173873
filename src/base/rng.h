// A small seeded generator: xoshiro256** (Blackman, Vigna 2018), its state filled by splitmix64. The same
// seed gives the same stream on every machine. Not for secrets. Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace isthmus {

class Rng {
 public:
  using result_type = uint64_t;

  explicit Rng(uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      word = z ^ (z >> 31);
    }
  }

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }

  uint64_t operator()() {
    const uint64_t out = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return out;
  }

  /// Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

  /// Uniform in [0, n), n > 0. The bias of the multiply-shift is below 2^-32 for n < 2^32.
  uint64_t below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<__uint128_t>((*this)()) * n) >> 64);
  }

 private:
  std::array<uint64_t, 4> state_{};
};

}  // namespace isthmus
