// Compile-time loops and forced inlining for kernel templates. All of it has internal linkage, for the reason
// that kernels/CMakeLists.txt gives.
#pragma once

#define ISTHMUS_INLINE inline __attribute__((always_inline))
/// After the parameter list of a lambda.
#define ISTHMUS_LAMBDA_INLINE __attribute__((always_inline))

namespace isthmus {
namespace {

/// A constant as a value: `Index<3>` converts to int 3 in a constant expression.
template <int I>
struct Index {
  static constexpr int kValue = I;
  ISTHMUS_INLINE constexpr operator int() const { return I; }  // NOLINT: implicit on purpose
};

/// Calls body(Index<0>), … body(Index<N - 1>).
template <int N, int I = 0, class Body>
ISTHMUS_INLINE void unroll(Body&& body) {
  if constexpr (I < N) {
    body(Index<I>{});
    unroll<N, I + 1>(body);
  }
}

}  // namespace
}  // namespace isthmus
